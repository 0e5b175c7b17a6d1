"""The loop: reproducible to the bit, bounded in memory, right in law, differentiable."""

import math
from itertools import pairwise, product

import pytest
import torch
from torch import nn

from tests.memory import run_numbers
from tests.problems import CountingPotential, minibatch, mixture, networks, sdes
from torchsrk import (
    SDE,
    SRKID,
    SRKLD,
    Chain,
    EulerMaruyama,
    ItoDiffusion,
    Langevin,
    NonFiniteStateError,
    integrate,
    sample,
)
from torchsrk.brownian import BrownianPath, FourierLevyArea
from torchsrk.potentials import FunctionPotential, LogisticRegression, NonConvex
from torchsrk.sampling import checks

OPTIONS = {"step_size": 0.1, "num_steps": 12, "seed": 5}


def problem(name):
    """An SDE, a starting batch and a scheme, in float32 as users have it."""
    if name == "mixture":
        return Langevin(mixture(20, torch.float32)), torch.zeros(701, 20, dtype=torch.float32), "srk-ld"
    if name == "regression":
        target = LogisticRegression.synthetic(500, 10, seed=1)
        return Langevin(target), torch.zeros(701, 10, dtype=torch.float32), "srk-ld"
    if name == "network":
        energy = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(-2)).float()
        potential = FunctionPotential(lambda x: energy(x.unsqueeze(-2)).squeeze(-1) + x.square().sum(-1))
        return Langevin(potential), torch.zeros(701, 3, dtype=torch.float32), "em"
    target = NonConvex(beta=2.0, gamma=0.5, dim=3)
    return ItoDiffusion(target, target.scale, noise_type="isotropic"), target.sample((701,), seed=1), "srk-id"


PROBLEMS = ["mixture", "regression", "network", "non-convex"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_same_bits_for_any_number_of_threads(name):
    sde, x0, scheme = problem(name)
    threads = torch.get_num_threads()
    states = []
    for count in (1, 2, 3, 5):
        torch.set_num_threads(count)
        states.append(sample(sde, x0, integrator=scheme, **OPTIONS).final)
        states.append(sample(sde, x0, integrator=scheme, block_size=128, **OPTIONS).final)
    torch.set_num_threads(threads)
    assert all(torch.equal(state, states[0]) for state in states[::2])
    assert all(torch.equal(state, states[1]) for state in states[1::2])
    torch.testing.assert_close(states[0], states[1])


@pytest.mark.parametrize("block_size", [None, 1024])
def test_same_bits_where_a_threaded_matrix_product_has_others(block_size):
    """Products this large round differently on 1 and 3 threads if torch may thread them; smaller ones may not."""
    sde, x0 = Langevin(LogisticRegression.synthetic(1000, 20, seed=1)), torch.zeros(5001, 20, dtype=torch.float32)
    threads, states = torch.get_num_threads(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        run = {"step_size": 0.1, "num_steps": 4, "seed": 5, "block_size": block_size}
        states.append(sample(sde, x0, integrator="srk-ld", **run).final)
    torch.set_num_threads(threads)
    assert torch.equal(*states)


@pytest.mark.parametrize("name", PROBLEMS)
def test_same_bits_thinned_or_not_checked_or_not_watched_or_not(name):
    sde, x0, scheme = problem(name)
    seen = []
    plain = sample(sde, x0, integrator=scheme, **OPTIONS)
    thinned = sample(sde, x0, integrator=scheme, thin=3, **OPTIONS)
    watched = sample(sde, x0, integrator=scheme, check_every=1, callbacks=[lambda k, x: seen.append((k, x))], **OPTIONS)
    assert plain.trajectory is None
    assert torch.equal(thinned.final, plain.final)
    assert torch.equal(watched.final, plain.final)
    assert [step for step, _ in seen] == list(range(1, 13))
    assert torch.equal(thinned.trajectory, torch.stack([x for step, x in seen if step % 3 == 0]))


@pytest.mark.parametrize("name", PROBLEMS)
def test_same_bits_stopped_and_resumed(name):
    sde, x0, scheme = problem(name)
    whole = sample(sde, x0, integrator=scheme, **OPTIONS)
    first = sample(sde, x0, integrator=scheme, **(OPTIONS | {"num_steps": 5}))
    second = sample(sde, first.final, integrator=scheme, first_step=first.step, **(OPTIONS | {"num_steps": 7}))
    assert torch.equal(second.final, whole.final)
    assert (first.step, second.step, whole.step) == (5, 12, 12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_batch_split_changes_at_most_rounding(name):
    sde, x0, scheme = problem(name)
    whole = sample(sde, x0, integrator=scheme, **OPTIONS).final
    cuts = [0, 1, 130, 700, 701]
    parts = [sample(sde, x0[a:b], integrator=scheme, first_particle=a, **OPTIONS).final for a, b in pairwise(cuts)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-5)


def test_leading_dimensions_are_particles_in_row_major_order():
    sde = Langevin(mixture(4))
    flat = sample(sde, torch.zeros(6, 4), integrator="srk-ld", **OPTIONS).final
    shaped = sample(sde, torch.zeros(2, 3, 4), integrator="srk-ld", block_size=1, **OPTIONS).final
    single = sample(sde, torch.zeros(4), integrator="srk-ld", first_particle=5, **OPTIONS).final
    torch.testing.assert_close(shaped.reshape(6, 4), flat)
    torch.testing.assert_close(single, flat[5])


def test_burn_in_and_thinning_keep_the_right_states():
    sde, options = Langevin(mixture(2)), {"step_size": 0.1, "seed": 1, "integrator": "em"}
    every = sample(sde, torch.zeros(3, 2), num_steps=10, thin=1, **options)
    kept = sample(sde, torch.zeros(3, 2), burn_in=3, num_steps=7, thin=2, **options)
    assert every.trajectory.shape == (10, 3, 2)
    assert torch.equal(kept.trajectory, every.trajectory[[4, 6, 8]])
    assert torch.equal(kept.final, every.final)
    assert kept.step == 10


def test_a_long_run_does_not_touch_its_start():
    x0 = torch.zeros(3, 2)
    sample(Langevin(mixture(2)), x0, integrator="em", **OPTIONS)
    assert torch.equal(x0, torch.zeros(3, 2))


def test_sampling_builds_no_graph():
    sde = networks(2)
    run = sample(sde, torch.zeros(3, 2, requires_grad=True), integrator="srk-id", thin=2, **OPTIONS)
    assert not run.final.requires_grad
    assert not run.trajectory.requires_grad


@pytest.mark.slow
def test_memory_does_not_grow_with_the_steps():
    code = """
from torchsrk import Langevin, sample
from torchsrk.potentials import FunctionPotential
torch.set_num_threads(2)
sde = Langevin(FunctionPotential(lambda x: 0.5 * x.square().sum(-1)))
x0 = torch.zeros(20000, 10)
run = lambda steps: sample(sde, x0, integrator="srk-ld", step_size=0.1, num_steps=steps, seed=0)
run(40)  # two threads' temporaries have met by then
before = peak()
run(160)
print(peak() - before)
"""
    assert run_numbers(code)[0] < 32.0  # a state is 0.8 MB: 120 of them, or a graph over them, would be 96 MB and more


@pytest.mark.parametrize("check_every", [1, 16, 1000])
def test_a_state_that_explodes_is_traced_to_its_step(check_every):
    # Euler's steps of x' = x³ from 2 pass 1e181 at the eighth and overflow at the ninth; from 0 they stay.
    sde = SDE(lambda x: x.pow(3), 1e-12, "additive")
    x0 = torch.tensor([[2.0], [0.0], [2.0]])
    options = {"integrator": "em", "step_size": 0.1, "num_steps": 100, "seed": 0, "check_every": check_every}
    with pytest.raises(NonFiniteStateError, match=r"at step 9; step 8 was.*Usually the step") as caught:
        sample(sde, x0, **options)
    assert "2 of 3 particles are not finite" in str(caught.value)
    assert (caught.value.step, caught.value.count, caught.value.last_finite_step) == (9, 2, 8)
    assert caught.value.last_finite.isfinite().all()
    resumed = sample(sde, x0, **(options | {"num_steps": 8}))
    assert torch.equal(resumed.final, caught.value.last_finite)


def broken_network():
    network = torch.nn.Linear(2, 2).double()
    torch.nn.init.constant_(network.weight, math.nan)
    return SDE(network, 0.1, "additive")


BROKEN = {
    "weights": (broken_network, "drift", 4, 0),
    "0/0": (lambda: SDE(lambda x: -x / x.norm(dim=-1, keepdim=True), 0.1, "additive"), "drift", 2, 1),
    "a gradient": (lambda: Langevin(FunctionPotential(lambda x: x.square().sum(-1).sqrt())), "drift", 2, 1),
    "a root": (lambda: SDE(torch.neg, lambda x: (x + 0.5).sqrt(), "diagonal"), "diffusion", 1, 3),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_drift_that_has_no_value_at_the_start_is_named(name):
    make, what, count, first = BROKEN[name]
    x0 = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [-2.0, 0.5]], dtype=torch.float64)
    message = (
        rf"The {what} is infinite or NaN there already, for {count} of 4 particles, the first of them number "
        rf"{10 + first} .*where the run began, and no step size would help"
    )
    options = {"integrator": "em", "step_size": 0.1, "seed": 0, "first_particle": 10}
    with pytest.raises(NonFiniteStateError, match=message) as caught:
        sample(make(), x0, num_steps=30, first_step=7, **options)
    assert "Usually" not in str(caught.value)
    with pytest.raises(NonFiniteStateError, match=message):
        integrate(make(), x0, (0.0, 1.0), **options)


def test_a_drift_that_loses_its_value_on_the_way_is_named():
    sde = SDE(lambda x: 1.0 / (x < 1.0).to(x), 1e-3, "additive")  # 1 below 1, and infinite above
    with pytest.raises(NonFiniteStateError, match=r"drift is infinite .*for 1 of 2 .* where they came to, or steps"):
        sample(sde, torch.tensor([[0.55], [-9.0]]), integrator="em", step_size=0.1, num_steps=30, seed=0)


def test_a_sum_that_overflows_is_not_an_explosion():
    sde = SDE(torch.zeros_like, 1e-9, "additive")
    run = sample(sde, torch.full((4, 2), 1e308), integrator="em", **OPTIONS)
    assert run.final.isfinite().all()


def test_progress_is_shown_on_request(capsys):
    sample(Langevin(mixture(2)), torch.zeros(3, 2), integrator="em", progress=True, **OPTIONS)
    shown = capsys.readouterr().err
    assert "em, h = 0.1" in shown
    assert "12/12" in shown
    sample(Langevin(mixture(2)), torch.zeros(3, 2), integrator="em", **OPTIONS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("step_size", [0.2, 0.5])
def test_invariant_law_of_the_papers_mixture(step_size):
    """Second moment in 20-D: SRK-LD's error is at most a tenth of Euler-Maruyama's at h = 0.2 (a seventh at 0.5)."""
    target = mixture(20)
    errors = {}
    for scheme in (EulerMaruyama(), SRKLD()):
        totals = []
        run = {"integrator": scheme, "step_size": step_size, "num_steps": 400, "burn_in": 60, "seed": 2}
        sample(
            Langevin(target),
            target.sample((2000,), seed=7),
            callbacks=[lambda k, x, totals=totals: totals.append(float(x.square().sum(-1).mean())) if k > 60 else None],
            **run,
        )
        errors[scheme.name] = sum(totals) / len(totals) - target.second_moment()
    # Along the 19 directions across the shift the target is a standard normal, for which both laws are known:
    # EM's variance is 1/(1 - h/2).
    assert errors["em"] == pytest.approx(20 * (1 / (1 - step_size / 2) - 1), rel=0.05)
    assert abs(errors["srk-ld"]) < errors["em"] / (10 if step_size == 0.2 else 7)


def test_invariant_law_of_the_non_convex_target():
    target = NonConvex(beta=2.0, gamma=0.5, dim=3)
    sde = ItoDiffusion(target, target.scale, noise_type="isotropic")
    totals = []
    run = {"integrator": "srk-id", "step_size": 0.05, "num_steps": 300, "seed": 2}
    keep = lambda k, x: totals.append(x.square().sum(-1))  # noqa: E731
    sample(sde, target.sample((1500,), seed=7, dtype=torch.float64), callbacks=[keep], **run)
    means = torch.stack(totals).mean(0)  # of each particle over time: independent over particles
    z = (means.mean() - target.second_moment()) / (means.std() / math.sqrt(len(means)))
    assert abs(z) < 4.0


def test_levy_area_can_be_chosen():
    sde, x0, _ = problem("non-convex")
    default = sample(sde, x0, integrator="srk-id", **OPTIONS).final
    fourier = sample(sde, x0, integrator="srk-id", levy_area=FourierLevyArea(50), **OPTIONS).final
    assert not torch.equal(default, fourier)
    assert (default - fourier).abs().median() < 0.5


# ------------------------------------------------------------------------------------------------------- integrate


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("langevin", "srk-ld"), *product(["langevin", "diagonal", "general", "isotropic", "timed"], ["em", "srk-id"])],
)
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_in_the_start(name, scheme, recompute):
    sde, dim = sdes()[name]
    x0 = torch.linspace(-1.0, 1.0, 2 * dim).reshape(2, dim).requires_grad_()

    def solve(x):
        return integrate(sde, x, (0.0, 0.2, 0.4), integrator=scheme, step_size=0.1, seed=3, recompute=recompute)

    assert torch.autograd.gradcheck(solve, (x0,))


@pytest.mark.parametrize("scheme", ["em", "srk-id"])
def test_gradients_in_the_parameters(scheme):
    sde = networks(2)
    names, values = zip(
        *((name, p.detach().clone().requires_grad_()) for name, p in sde.named_parameters()), strict=True
    )

    class Solve(nn.Module):
        def __init__(self):
            super().__init__()
            self.sde = sde

        def forward(self, x):
            return integrate(self.sde, x, (0.0, 0.3), integrator=scheme, step_size=0.1, seed=3)[-1]

    module = Solve()

    def solve(*parameters):
        named = {f"sde.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(module, named, (torch.ones(2, 2),))

    assert torch.autograd.gradcheck(solve, values)


@pytest.mark.slow
def test_recomputation_gives_the_same_gradients_in_less_memory():
    code = """
from torchsrk import SDE, integrate
net = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
sde = SDE(net, 0.5, "additive")
def loss(steps):
    xs = integrate(sde, torch.zeros(1000, 2), (0.0, 1.0), integrator="srk-ld", step_size=1 / steps, seed=0,
                   recompute=sys.argv[1] == "recompute")
    return xs[-1].square().mean()
torch.manual_seed(0); [p.data.normal_() for p in net.parameters()]
loss(4).backward(); net.zero_grad()
before = peak()
loss(128).backward()
print(peak() - before, net[0].weight.grad.sum().item())
"""
    results = {mode: run_numbers(code, mode) for mode in ("plain", "recompute")}
    assert results["recompute"][1] == pytest.approx(results["plain"][1], rel=1e-5)
    assert results["recompute"][0] < results["plain"][0] / 4  # about a tenth of the steps is held at once


def test_states_at_the_times_asked_for():
    sde, x0 = Langevin(mixture(2)), torch.ones(3, 2)
    options = {"integrator": "srk-ld", "step_size": 0.1, "seed": 0}
    every = integrate(sde, x0, torch.linspace(0.0, 1.0, 11), **options)
    some = integrate(sde, x0, [0.0, 0.3, 1.0], **options)
    assert every.shape == (11, 3, 2)
    assert torch.equal(every[0], x0)
    assert torch.equal(some, every[[0, 3, 10]])
    recomputed = integrate(sde, x0, [0.0, 0.3, 1.0], recompute=True, **options)
    assert torch.equal(recomputed, some)


def test_steps_are_counted_in_integers(monkeypatch):
    """Ten steps of 0.1 to 1, where adding up floats makes eleven."""
    monkeypatch.setattr(checks, "check_gradient", lambda *args: None)  # which is before the first step
    potential = CountingPotential()
    integrate(Langevin(potential), torch.ones(1, 2), (0.0, 1.0), integrator="em", step_size=0.1, seed=0)
    assert potential.gradients == 10


@pytest.mark.parametrize(("end", "times", "step_size"), [(4.0, 21, 0.004), (10.0, 51, 0.02), (1000.0, 11, 0.5)])
def test_times_may_be_single_precision(end, times, step_size):
    sde, _ = sdes()["diagonal"]
    ts = torch.linspace(0.0, end, times, dtype=torch.float32)
    states = integrate(sde, torch.ones(1, 3), ts, integrator="em", step_size=step_size, seed=0)
    exact = [end * k / (times - 1) for k in range(times)]
    torch.testing.assert_close(
        states, integrate(sde, torch.ones(1, 3), exact, integrator="em", step_size=step_size, seed=0)
    )


def test_a_partial_step_is_explicit():
    sde, x0 = SDE(torch.neg, 1e-12, "additive"), torch.ones(1, 1)
    options = {"integrator": "em", "step_size": 0.3, "seed": 0}
    with pytest.raises(ValueError, match=r"3\.33333333 steps of 0\.3.*step_size=0\.25, or partial_step=True"):
        integrate(sde, x0, (0.0, 1.0), **options)
    final = integrate(sde, x0, (0.0, 1.0), partial_step=True, **options)[-1]
    torch.testing.assert_close(final, torch.full((1, 1), 0.7**3 * 0.9))
    short = integrate(sde, x0, (0.0, 0.1), partial_step=True, **options)[-1]
    torch.testing.assert_close(short, torch.full((1, 1), 0.9))


def test_the_same_path_drives_every_scheme():
    sde, x0 = Langevin(mixture(2)), torch.zeros(200, 2)
    path = BrownianPath((200, 2), num_steps=64, seed=1)
    coarse = integrate(sde, x0, (0.0, 1.0), integrator="em", step_size=1 / 16, path=path)[-1]
    fine = integrate(sde, x0, (0.0, 1.0), integrator="srk-ld", step_size=1 / 64, path=path)[-1]
    unrelated = integrate(sde, x0, (0.0, 1.0), integrator="srk-ld", step_size=1 / 64, seed=1)[-1]
    assert (coarse - fine).norm() < 0.1 * (coarse - unrelated).norm()


def test_integrate_stops_at_an_explosion():
    sde = SDE(lambda x: x.pow(3), 1e-12, "additive")
    with pytest.raises(NonFiniteStateError, match="1 of 1 particles are not finite at step 9"):
        integrate(sde, torch.full((1, 1), 2.0), (0.0, 5.0), integrator="em", step_size=0.1, seed=0)


def test_minibatch_chains_resume_from_their_state_dict():
    first = minibatch()
    options = {"integrator": "srk-ld", "step_size": 0.01, "seed": 1}
    whole = sample(Langevin(minibatch()), torch.zeros(3, 2), num_steps=10, **options).final
    run = sample(Langevin(first), torch.zeros(3, 2), num_steps=4, **options)
    second = minibatch()
    second.load_state_dict(first.state_dict())
    resumed = sample(Langevin(second), run.final, num_steps=6, first_step=run.step, **options).final
    assert torch.equal(resumed, whole)


@pytest.mark.parametrize("scheme", [SRKID(), EulerMaruyama()], ids=str)
def test_srk_id_on_additive_noise_is_euler_maruyama(scheme):
    sde = sdes()["additive"][0]
    x0 = torch.ones(4, 3)
    expected = sample(sde, x0, integrator="em", **OPTIONS).final
    torch.testing.assert_close(sample(sde, x0, integrator=scheme, **OPTIONS).final, expected)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scheme", ["srk-ld", "baoab"])
def test_integrate_of_a_part_sees_the_noise_of_its_particles(scheme, compiled):
    from torchsrk import UnderdampedLangevin

    weight = torch.ones(3, requires_grad=True)
    potential = FunctionPotential(lambda x: 0.5 * (weight * x.square()).sum(-1), dim=3)
    sde = UnderdampedLangevin(potential, friction=1.0) if scheme == "baoab" else Langevin(potential)
    x0, options = torch.ones(11, 3), {"integrator": scheme, "step_size": 0.1, "seed": 1, "compile": compiled}
    whole = integrate(sde, x0, (0.0, 0.5), **options)
    part = integrate(sde, x0[5:], (0.0, 0.5), first_particle=5, **options)
    torch.testing.assert_close(part, whole[:, 5:], rtol=1e-14, atol=1e-14)
    first = integrate(sde, x0[:5], (0.0, 0.5), **options)
    (expected,) = torch.autograd.grad(whole[-1].square().sum(), weight)
    (found,) = torch.autograd.grad(part[-1].square().sum() + first[-1].square().sum(), weight)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    path = BrownianPath((11, 3), num_steps=10, seed=1)
    with pytest.raises(ValueError, match="first_particle=5 is for fresh noise"):
        integrate(sde, x0, (0.0, 0.5), path=path, first_particle=5, **{**options, "seed": None})


@pytest.mark.parametrize("levy_area", ["none", 0, False, FourierLevyArea])
def test_what_is_no_levy_area_is_refused(levy_area):
    sde, options = SDE(torch.neg, 1.0, "additive"), {"integrator": "em", "step_size": 0.1, "seed": 0}
    x0, message = torch.zeros(2, 1), r"levy_area is None.*FourierLevyArea\(\).*got.*integrator='em'"
    with pytest.raises(TypeError, match=message):
        sample(sde, x0, num_steps=1, levy_area=levy_area, **options)
    with pytest.raises(TypeError, match=message):
        integrate(sde, x0, (0.0, 1.0), levy_area=levy_area, **options)
    with pytest.raises(TypeError, match=message):
        Chain(sde, x0, levy_area=levy_area, **options)


def test_the_path_of_another_dtype_names_the_argument():
    path, sde = BrownianPath((2, 1), num_steps=10, seed=0), SDE(torch.neg, 1.0, "additive")
    with pytest.raises(ValueError, match=r"in torch.float64 .*BrownianPath\(\(2, 1\), dtype=torch.float32"):
        integrate(sde, torch.zeros(2, 1).float(), (0.0, 1.0), integrator="em", step_size=0.1, path=path)
