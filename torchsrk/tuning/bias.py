"""The bias that a step size makes, measured by the chain itself.

A scheme of law order p is off by a·h^p + … at stationarity. Chains with steps h and 2h on one path stay close, so that
the difference of their averages, (2^p - 1)·a·h^p, has a small standard error, over particles that are independent. No
reference is needed. A third chain, with 4h, says whether h is short enough for that to hold: what it finds beyond the
first term of the series is added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..coupling import coupled_positions, periods_of
from ..integrators import Integrator, integrator_named
from ..sde import BaseSDE

LEVELS = 3
_TIME = 10.0
_ERRORS = 3.0  # standard errors that a bound allows for: it is taken over many parameters

Parameters = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class StepBias:
    """What a step size does to means and standard deviations, in standard deviations, parameter by parameter.

    Attributes:
        step_size, law_order: h, and the order at which the bias falls with it.
        mean, mean_error: E_h[θ] - E[θ] over sd(θ), and its standard error.
        sd, sd_error: sd_h(θ)/sd(θ) - 1, and its standard error.
        observed_order: log₂ of how much more 4h and 2h differ than 2h and h do, for the largest bias; NaN if that is
            lost in noise.
    """

    step_size: float
    law_order: float
    mean: Tensor
    mean_error: Tensor
    sd: Tensor
    sd_error: Tensor
    observed_order: float

    def bound(self, step_size: float | None = None) -> float:
        """The largest bias that is plausible, over parameters, at this step size or, by the law's order, at another."""
        biases, errors = torch.cat((self.mean, self.sd)).abs(), torch.cat((self.mean_error, self.sd_error))
        here = float((biases + _ERRORS * errors).max())
        return here * ((step_size or self.step_size) / self.step_size) ** self.law_order

    def largest_step(self, tolerance: float) -> float:
        """The step size at which the bound is the tolerance."""
        bound = self.bound()
        if not math.isfinite(bound):
            return 0.0
        return self.step_size * (tolerance / max(bound, 1e-12)) ** (1.0 / self.law_order)

    def worst(self) -> tuple[int, str, float, float]:
        """The parameter with the largest bound, which of its moments, the bias and its error."""
        biases, errors = torch.cat((self.mean, self.sd)), torch.cat((self.mean_error, self.sd_error))
        at = int((biases.abs() + _ERRORS * errors).nan_to_num(math.inf).argmax())
        kind = "mean" if at < len(self.mean) else "standard deviation"
        return at % len(self.mean), kind, float(biases[at]), float(errors[at])


def step_size_bias(
    sde: BaseSDE,
    x0: Tensor,
    *,
    integrator: Integrator | str,
    step_size: float,
    seed: int,
    time: float = _TIME,
    parameters: Parameters | None = None,
) -> StepBias:
    """The bias of a scheme at a step size, from particles x0 (particles, dim) of the target's law or near it.

    Args:
        sde: of a potential, with additive noise.
        x0: (particles, dim): the more, the smaller the error of the bias.
        integrator: an unadjusted scheme or its name, whose law has an order.
        step_size: the one that is asked about; chains with steps of two and four times its length run beside.
        seed: of the noise.
        time: how long the chains run; the second half is averaged over. It should be several times as long as the
            target takes to forget.
        parameters: what is looked at, positions (..., dim) to (..., parameters); by default the positions.
    """
    scheme = integrator_named(integrator)
    _law_order(scheme)
    kept = coupled_positions(
        sde,
        x0,
        integrator=scheme,
        step_size=step_size,
        levels=LEVELS,
        periods=max(2, periods_of(time, step_size, LEVELS)),
        seed=seed,
    )
    return bias_of(kept if parameters is None else parameters(kept), scheme, step_size)


def bias_of(theta: Tensor, scheme: Integrator, step_size: float) -> StepBias:
    """The bias, from parameters (periods, levels, particles, parameters) of coupled chains."""
    order = _law_order(scheme)
    theta = theta[len(theta) // 2 :]
    centre, scale = theta[:, 0].mean((0, 1)), theta[:, 0].std((0, 1)).clamp_min(torch.finfo(theta.dtype).tiny)
    standard = (theta - centre) / scale
    # Averages over time of every particle: (levels, particles, 2·parameters). d sd/sd is half of d var/var.
    averages = torch.cat((standard, 0.5 * standard.square()), -1).mean(0)
    fine, coarse = averages[1] - averages[0], averages[2] - averages[1]
    particles, growth = math.sqrt(len(fine)), 2.0**order
    bias, error = fine.mean(0) / (growth - 1.0), fine.std(0) / (particles * (growth - 1.0))
    # The series' next even or odd term, a·h^p + c·h^(2p), as the coarser pair shows it.
    beyond = (coarse.mean(0) - growth * fine.mean(0)) / ((growth - 1.0) * (growth**2 - 1.0))
    error = (error.square() + beyond.square()).sqrt()
    means = standard.shape[-1]
    return StepBias(
        step_size=step_size,
        law_order=order,
        mean=bias[:means],
        mean_error=error[:means],
        sd=bias[means:],
        sd_error=error[means:],
        observed_order=_observed_order(fine, coarse),
    )


def _law_order(scheme: Integrator) -> float:
    order = scheme.law_order
    if order is None or not math.isfinite(order):
        raise ValueError(f"{scheme} has no order in law to measure a bias by (law_order is {order})")
    return order


def _observed_order(fine: Tensor, coarse: Tensor) -> float:
    """log₂ of the ratio of the differences, where it is largest; NaN if noise hides either."""
    change, error = fine.mean(0), fine.std(0) / math.sqrt(len(fine))
    at = int(change.abs().nan_to_num(0.0).argmax())
    ratio = float(coarse.mean(0)[at] / change[at])
    seen = float(change[at].abs()) > 4.0 * float(error[at]) and ratio > 0.0
    return math.log2(ratio) if seen else math.nan
