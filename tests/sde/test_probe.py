"""A diffusion that has not the structure of its noise type is refused at its first use, whatever it is made of."""

import gc
import math

import pytest
import torch
from torch import nn

from tests.problems import mixture, networks, sdes
from torchsrk import SDE, ItoDiffusion, integrate, sample
from torchsrk.sde import probe

OPTIONS = {"integrator": "srk-id", "step_size": 0.01, "seed": 0}


def run(diffusion, noise_type="diagonal", dim=3, x0=None, **options):
    x0 = torch.zeros(4, dim) if x0 is None else x0
    return sample(SDE(torch.neg, diffusion, noise_type), x0, num_steps=2, **(OPTIONS | options)).final


MIXED = {
    "a neighbour": (lambda x: 1.0 + 0.1 * x.roll(1, -1), "entry 1 of this diffusion depends on x_0"),
    "one entry": (lambda x: torch.cat((x[..., :2].cos(), x[..., :1].sin() + 2.0), -1), "entry 2 .* depends on x_0"),
    "the norm": (lambda x: (1.0 + x.square().sum(-1, keepdim=True)).expand_as(x), "depends on x_"),
    "softmax": (lambda x: torch.softmax(x, -1), "depends on x_"),
    "no derivative": (lambda x: 1.0 + (50.0 * x.roll(1, -1)).floor(), "depends on x_"),
    "no graph": (lambda x: torch.from_numpy(1.0 + x.detach().numpy()[..., ::-1].copy()), "depends on x_2"),
}


@pytest.mark.parametrize("name", MIXED)
def test_diagonal_noise_that_mixes_coordinates(name):
    diffusion, message = MIXED[name]
    with pytest.raises(ValueError, match=f"{message}.*take noise_type='general'"):
        run(diffusion)
    for x0 in (torch.ones(3), torch.linspace(-1.0, 1.0, 30).view(2, 5, 3)):
        with pytest.raises(ValueError, match="function of x_i alone"):
            run(diffusion, x0=x0)
    with torch.inference_mode(), pytest.raises(ValueError, match="function of x_i alone"):
        run(diffusion)
    with pytest.raises(ValueError, match="function of x_i alone"):
        integrate(SDE(torch.neg, diffusion, "diagonal"), torch.zeros(4, 3), (0.0, 0.1), **OPTIONS)
    with pytest.raises(ValueError, match="function of x_i alone"):
        sample(ItoDiffusion(mixture(3), diffusion, noise_type="diagonal"), torch.zeros(4, 3), num_steps=1, **OPTIONS)


@pytest.mark.parametrize("scheme", ["em", "srk-id", "srk-ld"])
def test_additive_noise_that_depends_on_the_state(scheme):
    for diffusion in (lambda x: 1.0 + x.flatten()[0].abs(), lambda x: torch.eye(3) + 0.1 * torch.diag_embed(x)):
        with pytest.raises(ValueError, match="additive noise is a σ that does not depend on x"):
            run(diffusion, "additive", integrator=scheme)
    late = SDE(lambda t, x: -x, lambda t, x: 1.0 + t * x.sum(), "additive", time_dependent=True)
    with pytest.raises(ValueError, match="does not depend on x"):
        sample(late, torch.zeros(4, 3), num_steps=1, **OPTIONS)


@pytest.mark.parametrize(
    "diffusion",
    [
        torch.cos,
        lambda x: torch.full_like(x, 2.0),
        lambda x: (x * (1.0 - x)).sqrt(),  # not a number outside the unit interval
        lambda x: 1.0 + (x > 0.0).to(x),
        lambda x: 1.0 + 1e-12 * torch.rand_like(x),
        lambda x: 1.0 + torch.rand_like(x),  # random: nothing can be said
        lambda x: (x.float() @ torch.linalg.qr(torch.randn(3, 3).float())[0]).double() * 0 + x.sin() + 2.0,
    ],
)
def test_right_diffusions_pass(diffusion):
    for x0 in (torch.full((4, 3), 0.5), torch.linspace(0.4, 0.6, 12).view(4, 3)):
        run(diffusion, x0=x0)


def test_every_sde_of_the_zoo_passes():
    for sde, dim in (*sdes().values(), (networks(5), 5)):
        probe.check_structure(sde, torch.linspace(-1.0, 1.0, 7 * dim).view(7, dim))
        probe.check_structure(sde.float(), torch.zeros(7, dim, dtype=torch.float32))


def test_many_dimensions_take_few_evaluations():
    calls = []

    def diffusion(x):
        calls.append(x.numel())
        return torch.cat((x[..., :-1].cos(), (x[..., -1:] + 1e-3 * x[..., 4321:4322]).cos()), -1)

    with pytest.raises(ValueError, match="entry 9999 of this diffusion depends on other coordinates"):
        run(diffusion, dim=10_000, x0=torch.ones(50, 10_000))
    assert max(calls) == 10_000
    assert len(calls) < 4 * (math.log2(10_000) + 5)


def test_a_training_loop_is_not_asked_every_time():
    calls = []

    class Diffusion(nn.Linear):
        def forward(self, x):
            calls.append(1)
            return super().forward(x)

    network = Diffusion(3, 3)
    nn.init.zeros_(network.weight)  # as networks often begin: then it shows no dependence
    sde, counts = SDE(torch.neg, network, "diagonal"), []
    for _ in range(20):
        before = len(calls)
        probe.check_structure(sde, torch.zeros(4, 3))
        counts.append(len(calls) > before)
    assert [k + 1 for k, probed in enumerate(counts) if probed] == [1, 2, 4, 8, 16]
    nn.init.constant_(network.weight, 0.1)
    for _ in range(11):
        probe.check_structure(sde, torch.zeros(4, 3))
    with pytest.raises(ValueError, match="function of x_i alone"):  # the 32nd
        probe.check_structure(sde, torch.zeros(4, 3))
    known = len(probe._USES)
    del sde, network
    gc.collect()
    assert len(probe._USES) < known


def outside_the_unit_ball(x):
    return (0.7 * x.norm(dim=-1, keepdim=True).clamp(min=1.0)).expand_as(x)


@pytest.mark.parametrize("far", [1, 3, 7, 50, 99])
def test_a_mixture_of_coordinates_that_few_starts_show(far):
    x0 = 0.01 * torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    x0[far] = torch.tensor([1.4, -0.9])
    with pytest.raises(ValueError, match="function of x_i alone"):
        run(outside_the_unit_ball, x0=x0)
    with pytest.raises(ValueError, match="does not depend on x"):
        run(lambda x: x.norm().clamp(min=1.0), "additive", x0=x0)


def test_half_of_the_starts_show_it_and_not_the_extreme_ones():
    x0 = torch.linspace(0.0, 1.0, 100).unsqueeze(-1) * torch.ones(3)
    bump = lambda x: 1.0 + ((x.sum(-1, keepdim=True) - 1.5).abs() < 1.2).to(x).expand_as(x)  # noqa: E731
    with pytest.raises(ValueError, match="function of x_i alone"):
        run(bump, x0=x0)


@pytest.mark.parametrize("noise_type", ["diagonal", "additive"])
def test_states_that_are_reached_are_looked_at(noise_type):
    def diffusion(x):
        return outside_the_unit_ball(x) if noise_type == "diagonal" else outside_the_unit_ball(x[..., :1]).max()

    sde, x0 = SDE(lambda x: 3.0 + 0.0 * x, diffusion, noise_type), torch.zeros(5, 3)
    probe.check_structure(sde, x0)  # where they begin there is nothing to see
    with pytest.raises(ValueError, match="It is seen where particles have come to"):
        sample(sde, x0, num_steps=100, **OPTIONS)
    probe.check_structure(sde, x0)
    with pytest.raises(ValueError, match="It is seen where particles have come to"):  # the fourth use
        integrate(sde, x0, (0.0, 1.0), **OPTIONS)
    integrate(sde, x0, (0.0, 0.1), **OPTIONS)  # the fifth, which is not looked at
