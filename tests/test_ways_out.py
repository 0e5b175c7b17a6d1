"""What goes wrong with a posterior most often, and what the error says of it."""

import math

import pytest
import torch
from torch.distributions import HalfNormal, Normal, constraints

from torchsrk import tune
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential

DATA = torch.tensor([1.0, 2.0, 4.0])


def energy(x):
    return 0.5 * x.square().sum(-1)


def with_scale(x):
    mu, tau = x[..., :1], x[..., 1:]
    return Normal(mu, tau).log_prob(DATA).sum(-1) + HalfNormal(1.0).log_prob(tau).squeeze(-1)


def on_data(x):
    return -0.5 * (x - torch.tensor([1.0, math.nan])).square().sum(-1)


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (energy, r"Is the sign right\?.*energy= and log_density="),
        (with_scale, r"(?s)scale.*Give DiffusionDistribution support=.*UnconstrainedPotential.*validate_args=False"),
        (on_data, "NaN at all of 100 starting points: look for NaN in the data"),
        (lambda x: -math.inf * torch.ones_like(x[..., 0]) + 0.0 * x.sum(-1), r"give start= \(initial= of"),
    ],
)
def test_densities_that_are_not_what_was_meant(density, message):
    with pytest.raises(ValueError, match=message):
        DiffusionDistribution(density, event_shape=(2,), particles=100, seed=0).sample()
    with pytest.raises(ValueError, match=message):
        tune(density, dim=2, particles=100, seed=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_energy_on_a_support(dtype):
    """Particles end at its edge, where it is infinite: by rounding, or by far."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with pytest.raises(ValueError, match=r"Is its sign right\?.*log_density= and energy="):
            DiffusionDistribution(
                lambda x: (x - 2.0 * x.log()).sum(-1),
                event_shape=(2,),
                support=constraints.positive,
                particles=200,
                seed=0,
            ).sample()
    finally:
        torch.set_default_dtype(before)


def test_an_argument_refused_in_a_run_with_a_step_size():
    posterior = DiffusionDistribution(with_scale, event_shape=(2,), step_size=0.1, num_steps=3, seed=0)
    for draw in (posterior.sample, posterior.rsample):
        with pytest.raises(ValueError, match="support="):
            draw((50,))


def test_other_errors_of_a_density_stay_what_they_are():
    def refuses(x):
        raise ValueError("no such data")

    with pytest.raises(ValueError, match=r"^no such data$"):
        DiffusionDistribution(refuses, event_shape=(2,), seed=0).sample()


def test_numbers_for_shapes():
    for name in ("event_shape", "batch_shape"):
        with pytest.raises(TypeError, match=rf"{name} is a shape, a tuple of sizes; got 8: give \(8,\)"):
            DiffusionDistribution(energy, **{"event_shape": (2,), name: 8})
    posterior = DiffusionDistribution(energy=energy, event_shape=(2,), particles=100, seed=0)
    for draw in (posterior.sample, posterior.rsample):
        with pytest.raises(TypeError, match=r"sample_shape is a shape, a tuple of sizes; got 2000: give \(2000,\)"):
            draw(2000)
    with pytest.raises(TypeError, match=r"give \(3,\)"):
        posterior.expand(3)
    with pytest.raises(TypeError, match=r"give \(3,\)"):
        tune(FunctionPotential(energy, dim=2), batch_shape=3, seed=0)
