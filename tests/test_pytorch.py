"""At home in PyTorch: torch.compile without a graph break, devices without hidden copies, autocast, inference mode."""

import warnings

import pytest
import torch
from torch import nn

from tests.problems import minibatch, networks, potentials, sdes
from torchsrk import SDE, Langevin, NonFiniteStateError, integrate, sample
from torchsrk.brownian import FreshNoise, Increment
from torchsrk.distributions import DiffusionDistribution
from torchsrk.integrators import integrator_named
from torchsrk.potentials import DistributionPotential, FunctionPotential
from torchsrk.sampling.dynamics import Dynamics
from torchsrk.sampling.plans import Pace

DIM, PARTICLES, STEP_SIZE = 3, 5, 0.01
CUDA = pytest.param(
    "cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)


class Energy(nn.Module):
    """A network energy."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(DIM, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1) + 0.5 * x.square().sum(-1)


def problems():
    """Every shipped potential, every noise type and class of SDE, and networks, with their dimensions."""
    targets = potentials() | {"minibatch": (minibatch(), 2), "network": (FunctionPotential(Energy()), DIM)}
    simplex = torch.distributions.Dirichlet(torch.tensor([2.0, 3.0, 4.0]), validate_args=False)
    return {
        **{name: (Langevin(target), dim) for name, (target, dim) in targets.items()},
        **sdes(),
        "networks": (networks(DIM), DIM),
        "simplex": (DiffusionDistribution(simplex, step_size=0.1, num_steps=1)._sde, 2),
    }


SCHEMES = ("em", "srk-ld", "srk-id")


def pairs():
    """Two schemes for every problem, and where three are for it, each pair of them by turns."""
    for k, (name, (sde, _)) in enumerate(problems().items()):
        fit = [scheme for scheme in SCHEMES if sde.noise.name in integrator_named(scheme).noise_types]
        yield from ((name, scheme) for scheme in fit if len(fit) < 3 or scheme != SCHEMES[k % 3])


PAIRS = list(pairs())


def prepared(name, scheme, device="cpu"):
    """The SDE, the scheme, points and an increment."""
    sde, dim = problems()[name]
    integrator = integrator_named(scheme)
    x = torch.linspace(0.1, 0.6, PARTICLES * dim, device=device).view(PARTICLES, dim)
    sde = sde.to(device)
    noise = FreshNoise(0, (PARTICLES, sde.brownian_dim(x)), dtype=x.dtype, device=x.device)
    return sde, integrator, x, noise.increment(0, 0.0, STEP_SIZE, integrator.required(sde))


# What is traced depends on the mode by the potential, and each has its turn with both.
@pytest.mark.parametrize(("name", "scheme", "grad"), [(*pair, bool(k % 2)) for k, pair in enumerate(PAIRS)])
def test_a_step_compiles_into_one_graph(name, scheme, grad):
    if name == "simplex" and torch.__version__.startswith("2.6."):
        pytest.skip("the tracer of PyTorch 2.6 does not follow a method of a distribution that is kept as a function")
    sde, integrator, x, increment = prepared(name, scheme)

    def step(x, W, H, A):
        return integrator.step(sde, 0.0, x, Increment(STEP_SIZE, W, H, A))

    parts = (increment.W, increment.H, increment.A)
    torch._dynamo.reset()
    torch.distributions.Distribution.set_default_validate_args(False)  # as a process's first torch.compile does
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on what it compiles
        compiled = torch.compile(step, fullgraph=True, backend="eager")
        found = compiled(x, *parts)
    if name == "minibatch":
        sde.potential.set_extra_state(torch.tensor(0))  # the same minibatches again
    torch.testing.assert_close(found, step(x, *parts).detach())


def test_a_compiled_minibatch_counts_its_draws():
    sde, integrator, x, increment = prepared("minibatch", "srk-ld")
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, W, H: integrator.step(sde, 0.0, x, Increment(STEP_SIZE, W, H, None)), fullgraph=True, backend="eager"
    )
    with torch.no_grad():
        states = [compiled(x, increment.W, increment.H) for _ in range(12)]  # past the limit of compiling again
    assert sde.potential.draws == 36
    assert len({tuple(state.flatten().tolist()) for state in states}) == 12


def test_gradients_of_parameters_through_a_compiled_step():
    sde, integrator, x, increment = prepared("network", "srk-ld")

    def loss(x, W, H):
        return integrator.step(sde, 0.0, x, Increment(0.5, W, H, None)).square().sum()

    torch._dynamo.reset()
    parameters = list(sde.parameters())
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, increment.W, increment.H), parameters, allow_unused=True)
    expected = torch.autograd.grad(loss(x, increment.W, increment.H), parameters, allow_unused=True)
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None:  # the last bias moves the energy as a whole
            assert ours is None or not ours.any()
        else:
            torch.testing.assert_close(ours, theirs)


# One scheme for every problem, the first of its two or the second by turns.
@pytest.mark.parametrize("device", ["meta", CUDA])
@pytest.mark.parametrize(
    ("name", "scheme"),
    [pair for k, pair in enumerate(PAIRS) if k % 4 in (1, 2) and pair[0] not in ("distribution", "simplex")],
)
def test_steps_without_a_host_copy(name, scheme, device):
    """On "meta" a value read back raises, as does a tensor made on the wrong device; CUDA is told to raise, too.

    The loop of ``sample`` between two checks: noise, Lévy areas and steps. Distributions keep their own tensors.
    """
    sde, integrator, x, _ = prepared(name, scheme, device)
    chain = Dynamics(sde, integrator, Pace(STEP_SIZE), 0, 0, None, sde.brownian_dim(x))
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        state = chain.advance(x, 0, first=0, last=2)
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    assert (state.device.type, state.shape, state.dtype) == (device, x.shape, x.dtype)


def test_a_distribution_on_the_meta_device():
    normal = torch.distributions.Normal(*torch.ones(2, DIM, device="meta"), validate_args=False)
    sde = Langevin(DistributionPotential(torch.distributions.Independent(normal, 1, validate_args=False)))
    chain = Dynamics(sde, integrator_named("srk-ld"), Pace(STEP_SIZE), 0, 0, None, DIM)
    assert chain.advance(torch.ones(4, DIM, device="meta"), 0, first=0, last=2).device.type == "meta"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("name", "scheme"), [pair for pair in PAIRS if pair[0] not in ("distribution", "simplex")])
def test_cuda_has_the_numbers_of_the_cpu(name, scheme):
    options = {"integrator": scheme, "step_size": STEP_SIZE, "num_steps": 20, "seed": 0}
    torch.manual_seed(0)
    sde, _, x, _ = prepared(name, scheme)
    here = sample(sde, x, **options).final
    torch.manual_seed(0)
    sde, _, x, _ = prepared(name, scheme, "cuda")
    torch.testing.assert_close(sample(sde, x, **options).final.cpu(), here)


class CastingDrift(nn.Linear):
    """Runs in bfloat16 by a region of its own, and returns what it was given."""

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return super().forward(x).to(x.dtype)


class LowDrift(nn.Linear):
    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return super().forward(x)


def single(drift):
    torch.manual_seed(0)
    sde = SDE(drift(DIM, DIM), 0.5 * torch.eye(DIM), "additive").to(torch.float32)
    return sde, torch.ones(PARTICLES, DIM, dtype=torch.float32)


@pytest.mark.parametrize("solve", ["sample", "compiled", "integrate", "recompute"])
def test_autocast_does_not_reach_the_solver(solve):
    """Neither the states nor the noise: they are the bits of a run without it."""
    sde, x = single(nn.Linear)

    def run():
        if solve in ("sample", "compiled"):
            options = {"integrator": "srk-ld", "step_size": 0.1, "num_steps": 4, "seed": 0}
            return sample(sde, x, compile=solve == "compiled", **options).final
        options = {"integrator": "srk-ld", "step_size": 0.1, "seed": 0}
        return integrate(sde, x, [0.0, 0.4], recompute=solve == "recompute", **options)[-1]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = run()
    outside = run()
    assert torch.equal(inside, outside)
    if outside.requires_grad:
        found, expected = (torch.autograd.grad(x.sum(), sde.drift_function.weight)[0] for x in (inside, outside))
        assert torch.equal(found, expected)


def test_a_network_may_choose_a_lower_precision():
    sde, x = single(CastingDrift)
    plain, _ = single(nn.Linear)
    options = {"integrator": "em", "step_size": 0.1, "num_steps": 4, "seed": 0}
    low, full = (sample(these, x, **options).final for these in (sde, plain))
    assert not torch.equal(low, full)
    torch.testing.assert_close(low, full, rtol=0.02, atol=0.02)
    sde, x = single(LowDrift)
    with pytest.raises(TypeError, match=r"drift returned torch.bfloat16 .* for x in torch.float32"):
        sample(sde, x, **options)


def test_mixed_precisions_are_refused():
    sde, x = single(nn.Linear)
    with pytest.raises(TypeError, match=r"x0 is torch.float64 on cpu, but the SDE's .* is torch.float32"):
        sample(sde, x.double(), integrator="em", step_size=0.1, num_steps=1, seed=0)
    with pytest.raises(TypeError, match="x0 is a float32 or float64 tensor"):
        sample(sde.half(), x.half(), integrator="em", step_size=0.1, num_steps=1, seed=0)
    mixed = SDE(lambda x: -x.double(), 1.0, "additive")
    with pytest.raises(TypeError, match=r"drift returned torch.float64"):
        sample(mixed, x, integrator="em", step_size=0.1, num_steps=1, seed=0)


@pytest.mark.parametrize("name", ["function", "network", "isotropic", "mixture"])
def test_inference_mode_changes_nothing(name):
    """Gradients by autograd would all be 0 in it."""
    sde, _, x, _ = prepared(name, "em")
    options = {"integrator": "em", "step_size": STEP_SIZE, "seed": 0}

    def results(start):
        final = sample(sde, start, num_steps=3, **options).final
        return final, integrate(sde, start, [0.0, 3 * STEP_SIZE], **options)[-1], sde.potential.grad(start)

    with torch.inference_mode():
        inside, from_inside = results(x), results(x.clone())
    for ours, also, theirs in zip(inside, from_inside, results(x), strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(also, theirs)


def test_blocks_on_threads_in_inference_mode():
    sde, x = Langevin(FunctionPotential(lambda x: x.square().sum(-1))), torch.ones(64, 2)
    options = {"integrator": "em", "step_size": 0.1, "num_steps": 3, "seed": 0, "block_size": 16}
    with torch.inference_mode(), torch.autocast("cpu"):
        inside = sample(sde, x, **options).final
    assert torch.equal(inside, sample(sde, x, **options).final)


@pytest.mark.parametrize("check_every", [1, 3, 100])
@pytest.mark.parametrize("recompute", [False, True])
def test_integrate_traces_an_explosion_to_its_step(check_every, recompute):
    sde = SDE(lambda x: x.pow(3), 0.1, "additive")
    options = {"integrator": "em", "step_size": 0.5, "seed": 0, "recompute": recompute, "check_every": check_every}
    with pytest.raises(NonFiniteStateError) as failure:
        integrate(sde, torch.full((2, 1), 3.0, requires_grad=True), [0.0, 10.0], **options)
    error = failure.value
    assert error.last_finite_step == error.step - 1
    assert error.last_finite.isfinite().all()
    again = integrate(sde, torch.full((2, 1), 3.0), [0.0, 0.5 * error.last_finite_step], **options)
    assert torch.equal(again[-1], error.last_finite)
