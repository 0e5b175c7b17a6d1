"""A density of the wrong sign is told: by a warning if the run ends, in the error if it does not."""

import warnings

import pytest
import torch

from torchsrk import Chain, Langevin, NonFiniteStateError, UnderdampedLangevin, sample, tune
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential

X0 = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
OPTIONS = {"step_size": 0.1, "seed": 0}


def log_density(x):
    return -0.5 * x.square().sum(-1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scheme", ["em", "lm", "baoab"])
def test_a_log_density_as_an_energy(scheme, compiled):
    target = FunctionPotential(log_density)
    sde = UnderdampedLangevin(target, friction=1.5) if scheme == "baoab" else Langevin(target)
    with pytest.warns(RuntimeWarning, match="energies fall the farther particles go.*energy= and log_density="):
        sample(sde, X0, integrator=scheme, num_steps=100, compile=compiled, **OPTIONS)


def test_an_energy_as_a_log_density():
    drawn = DiffusionDistribution(lambda x: -log_density(x), event_shape=(2,), integrator="em", num_steps=80, **OPTIONS)
    with pytest.warns(RuntimeWarning, match="Is the sign right"):
        drawn.sample((100,))


def test_the_error_of_a_run_that_breaks():
    for target in (FunctionPotential(log_density), FunctionPotential(lambda x: -x.pow(4).sum(-1))):
        with pytest.raises(NonFiniteStateError, match=r"are not finite at step .* But energies fall the farther"):
            sample(Langevin(target), X0, integrator="em", num_steps=20000, **OPTIONS)


def test_a_step_too_long_is_no_matter_of_sign():
    steep = FunctionPotential(energy=lambda x: x.pow(4).sum(-1))
    with pytest.raises(NonFiniteStateError) as raised:
        sample(Langevin(steep), 10.0 * X0, integrator="em", num_steps=200, **OPTIONS)
    assert "energies" not in str(raised.value)


@pytest.mark.parametrize(
    "energy",
    [
        lambda x: 0.5 * (x - 1000.0).square().sum(-1),  # far from the start
        lambda x: 0.5 * (x / 500.0).square().sum(-1),  # wide
        lambda x: torch.log1p(x.square()).sum(-1),  # heavy tails
        lambda x: 0.0 * x.sum(-1),  # nowhere lower than elsewhere
        lambda x: torch.where(x.abs().amax(-1) < 2e3, (0.5 * (x - 1e3).square()).sum(-1), torch.nan),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_sound_targets_are_left_alone(energy, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(Langevin(FunctionPotential(energy)), scale * X0, integrator="em", num_steps=200, **OPTIONS)


def test_most_runs_pay_nothing():
    calls = []

    class Counted(FunctionPotential):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

        def grad(self, x):
            return x

    sample(Langevin(Counted(energy=lambda x: -log_density(x))), X0, integrator="em", num_steps=50, **OPTIONS)
    before = len(calls)
    sample(Langevin(Counted(energy=lambda x: -log_density(x))), X0, integrator="em", num_steps=100, **OPTIONS)
    assert len(calls) == 2 * before


def counted_warnings(calls):
    """How many warnings of a swapped sign each of the calls gives."""
    counts = []
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert all("Is the sign right" in str(warning.message) for warning in caught)
        counts.append(len(caught))
    return counts


@pytest.mark.parametrize("steps", [1, 10, 60])
def test_a_loop_of_short_runs(steps):
    """Every run goes less than ten times as far as it began, or all of them farther: the chain is told once."""
    chain = Chain(Langevin(FunctionPotential(log_density)), X0, integrator="em", **OPTIONS)
    counts = counted_warnings([lambda: chain.advance(steps)] * (120 // steps))
    assert sum(counts) == 1
    assert chain.x.abs().max() > 1e3


def test_a_chain_that_was_loaded_is_looked_at_from_there():
    target = Langevin(FunctionPotential(log_density))
    first, second = (Chain(target, X0, integrator="em", **OPTIONS) for _ in range(2))
    first.advance(5)
    second.load_state_dict(first.state_dict())
    assert sum(counted_warnings([lambda: second.advance(5)] * 20)) == 1


@pytest.mark.parametrize("draw", ["sample", "rsample"])
@pytest.mark.parametrize("counts", [(100, 100), (100, 5), (5, 100)])
def test_warm_chains(draw, counts):
    options = {"integrator": "em", "num_steps": 10, "warm_start": draw == "sample", **OPTIONS}
    drawn = DiffusionDistribution(lambda x: -log_density(x), event_shape=(2,), **options)
    if draw == "rsample":
        drawn.num_steps = 60
        assert counted_warnings([lambda: drawn.rsample((counts[0],))]) == [1]
        return
    calls = [lambda: drawn.sample((counts[0],)), *[lambda: drawn.sample((counts[1],))] * 12]
    assert sum(counted_warnings(calls)) == 1
    again = DiffusionDistribution(lambda x: -log_density(x), event_shape=(2,), **options)
    again.load_state_dict(drawn.state_dict())
    assert sum(counted_warnings([lambda: again.sample((counts[1],))] * 12)) == 1


def test_the_error_of_differentiable_draws_that_break():
    options = {"event_shape": (2,), "integrator": "em", "num_steps": 50, **OPTIONS}
    with pytest.raises(NonFiniteStateError, match="But energies fall the farther"):
        DiffusionDistribution(log_density=lambda x: x.pow(4).sum(-1), **options).rsample((50,))


def test_a_sound_chain_pays_for_few_energies():
    """A target that is far from the start is looked at as particles get there, and not at every call from then on."""
    calls = []

    class Counted(FunctionPotential):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

        def grad(self, x):
            return x - 1000.0

    target = Counted(energy=lambda x: 0.5 * (x - 1000.0).square().sum(-1))
    chain = Chain(Langevin(target), X0, integrator="em", **OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain.advance(100)
        assert calls.count(64) == 5  # the others are of checks of the gradient
        for _ in range(20):
            chain.advance(1)
    assert chain.x.mean() > 900.0
    assert calls.count(64) == 5


def test_a_density_that_can_not_be_evaluated_that_far():
    def refuses(x):
        if bool((x.abs() > 1e5).any()):
            raise ValueError("too far")
        return log_density(x)

    class Slope(FunctionPotential):
        def grad(self, x):
            return -x

    target = Slope(refuses)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(Langevin(target), X0, integrator="em", num_steps=100, **OPTIONS)


def test_tuning_says_so_too():
    with pytest.raises(ValueError, match=r"[Ii]s (the|its) sign right"):
        tune(FunctionPotential(log_density, dim=2), particles=200, seed=0)
