"""Fine solutions on the same Brownian path, and the orders a scheme really has.

A user who writes a scheme measures it here in a few lines:

    estimate = strong_order(MyScheme(), sde, x0, t1=1.0, num_steps=(8, 16, 32, 64), fine_steps=1024, seed=0)
    estimate.order, estimate.interval
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from .brownian import BrownianPath, Increment, Needs, start_normals
from .integrators import QUICSORT, SRKID, SRKLD, Integrator, integrator_named
from .integrators.first_step import first_step
from .sde import BaseSDE
from .sde.base import Normals


@dataclass(frozen=True)
class OrderEstimate:
    """The slope of log error against log step size.

    Attributes:
        order: the slope.
        interval: its confidence interval.
        step_sizes, errors: the points it was fitted to; errors are root-mean-square.
    """

    order: float
    interval: tuple[float, float]
    step_sizes: list[float] = field(repr=False)
    errors: list[float] = field(repr=False)


@dataclass(frozen=True)
class LocalDeviationOrders:
    """The paper's (p1, p2).

    Attributes:
        mean_square: p1, of the one-step error's mean square.
        mean: p2, of the square of its mean given the start.
    """

    mean_square: OrderEstimate
    mean: OrderEstimate


def best_scheme(sde: BaseSDE) -> Integrator:
    """The shipped scheme of the highest order that serves ``sde``: what a fine grid is solved with."""
    return next(scheme for scheme in (QUICSORT(), SRKLD(), SRKID()) if scheme.is_for(sde))


def fine_solution(
    sde: BaseSDE,
    x0: Tensor,
    path: BrownianPath,
    *,
    integrator: Integrator | str | None = None,
    torchsde_method: str | None = None,
) -> Tensor:
    """The state at path.t1, solved on the path's finest grid.

    Args:
        sde, x0: the SDE, and positions (particles, dim) at time 0.
        path: of (particles, brownian).
        integrator: the scheme; by default the shipped one of the highest order.
        torchsde_method: solve with torchsde instead, by one of its methods ("euler", "milstein", "srk"), on the same
            path.
    """
    if torchsde_method is not None:
        return _torchsde_solution(sde, x0, path, torchsde_method)
    return _solve(integrator_named(integrator or best_scheme(sde)), sde, x0, path, path.num_steps)


def strong_errors(
    integrator: Integrator | str,
    sde: BaseSDE,
    x0: Tensor,
    path: BrownianPath,
    num_steps: Sequence[int],
    reference: Tensor | None = None,
) -> Tensor:
    """Squared errors at path.t1 against a fine solution on the same path, (step counts, particles).

    Args:
        integrator: a scheme or its name.
        sde, x0: the SDE, and positions (particles, dim) at time 0.
        path: whose number of steps all counts divide.
        num_steps: the step counts.
        reference: the positions (particles, dim) at path.t1, by default ``fine_solution``'s.
    """
    scheme = integrator_named(integrator)
    truth = fine_solution(sde, x0, path) if reference is None else reference
    solved = [_solve(scheme, sde, x0, path, count) for count in num_steps]
    return torch.stack([(x - truth).square().sum(-1).flatten() for x in solved])


def strong_order(
    integrator: Integrator | str,
    sde: BaseSDE,
    x0: Tensor,
    *,
    t1: float,
    num_steps: Sequence[int],
    fine_steps: int,
    seed: int,
    level: float = 0.99,
) -> OrderEstimate:
    """The empirical strong order at time t1 over the given step counts, which divide ``fine_steps``.

    Take ``fine_steps`` some sixteen times the largest count or more, so that the reference's own error is lost beside
    the scheme's. The confidence interval is over paths.

    Args:
        integrator: a scheme or its name.
        sde, x0: the SDE, and positions (particles, dim) at time 0: a path for each.
        t1: the time at which errors are looked at.
        num_steps: the step counts, two or more.
        fine_steps: of the solution that all are compared with.
        seed: of the paths.
        level: of the confidence interval.
    """
    shape = (*x0.shape[:-1], sde.brownian_dim(x0))
    path = BrownianPath(shape, num_steps=fine_steps, seed=seed, t1=t1, dtype=x0.dtype, device=x0.device)
    errors = strong_errors(integrator, sde, x0, path, num_steps)
    return fit_order([t1 / count for count in num_steps], errors, level=level)


def fit_order(step_sizes: Sequence[float], squared_errors: Tensor, *, level: float = 0.99) -> OrderEstimate:
    """Least squares of log root-mean-square error on log step size, from squared errors (step sizes, paths).

    The paths are shared between step sizes, so the errors are correlated; the interval linearises the slope in each
    path's contribution, which accounts for that.

    Args:
        step_sizes: two or more.
        squared_errors: (step sizes, paths).
        level: of the confidence interval.
    """
    mean = squared_errors.mean(-1)
    weights = _slope_weights(step_sizes).to(squared_errors)
    influence = (weights / (2.0 * mean)) @ (squared_errors - mean.unsqueeze(-1))
    deviation = float(influence.std()) / math.sqrt(squared_errors.shape[-1])
    return _estimate(step_sizes, mean, weights, deviation, level)


def local_deviation_orders(
    integrator: Integrator | str,
    sde: BaseSDE,
    starts: Tensor,
    *,
    step_sizes: Sequence[float],
    paths: int,
    seed: int,
    fine_steps: int = 16,
    level: float = 0.99,
) -> LocalDeviationOrders:
    """The local deviation orders (p1, p2) of the paper's definition, averaged over ``starts`` (starts, dim).

    From every start ``paths`` steps are made on independent paths and compared with fine solutions. The mean of the
    deviation is far smaller than the deviation, so it is read off as the constant in a regression of the deviation on
    polynomials of the increment that have mean zero, and its square is freed of the bias that its own noise adds.

    Args:
        integrator: a scheme or its name.
        sde: the SDE.
        starts: (starts, dim).
        step_sizes: two or more.
        paths: of each start and step size.
        seed: of the paths.
        fine_steps: of the solution that a step is compared with.
        level: of the confidence intervals.
    """
    scheme = integrator_named(integrator)
    squares, means, variances = [], [], []
    for number, h in enumerate(step_sizes):
        deviation, increment = _local_deviations(scheme, sde, starts, h, paths, seed + number, fine_steps)
        mean, variance = _squared_mean(deviation, increment)
        squares.append(deviation.square().sum(-1).flatten())
        means.append(mean)
        variances.append(variance)
    mean_square = fit_order(step_sizes, torch.stack(squares), level=level)
    mean, weights = torch.stack(means), _slope_weights(step_sizes).to(starts)
    deviation_of_slope = float((weights / (2.0 * mean)).square() @ torch.stack(variances)) ** 0.5
    return LocalDeviationOrders(mean_square, _estimate(step_sizes, mean, weights, deviation_of_slope, level))


def _solve(
    scheme: Integrator, sde: BaseSDE, x0: Tensor, path: BrownianPath, num_steps: int, normals: Normals | None = None
) -> Tensor:
    """The SDE's state at path.t1, (..., width): the position, and a velocity where there is one."""
    dt = (path.t1 - path.t0) / num_steps
    normals = normals or start_normals(path.seed)
    with torch.no_grad():
        state = scheme.init(sde, path.t0, x0, dt, normals)
        for number, increment in enumerate(path.increments(num_steps, scheme.required(sde))):
            step = scheme.step if number else partial(first_step, scheme)
            state = step(sde, path.t0 + number * dt, state, increment)
    return state[..., : sde.start(x0, normals).shape[-1]]


def _torchsde_solution(sde: BaseSDE, x0: Tensor, path: BrownianPath, method: str) -> Tensor:
    import torchsde

    if x0.ndim != 2:
        raise ValueError(f"torchsde solves states (particles, dim); x0 has shape {tuple(x0.shape)}")
    ts = torch.tensor([path.t0, path.t1], dtype=x0.dtype, device=x0.device)
    # torchsde adds up its steps and makes one more of almost nothing where the sum falls short: a cell longer by a
    # hair keeps the count.
    dt = path.dt * (1.0 + 1e-9)
    with torch.no_grad():
        return torchsde.sdeint(sde, x0, ts, bm=path.interval, method=method, dt=dt)[-1]


def _slope_weights(step_sizes: Sequence[float]) -> Tensor:
    """The slope of a least-squares line through (log h, y) is weights · y."""
    if len(step_sizes) < 2 or len(set(step_sizes)) != len(step_sizes):
        raise ValueError(f"an order needs two or more different step sizes; got {list(step_sizes)}")
    logs = torch.tensor(step_sizes, dtype=torch.float64).log()
    centred = logs - logs.mean()
    return centred / centred.square().sum()


def _estimate(
    step_sizes: Sequence[float], squared: Tensor, weights: Tensor, deviation: float, level: float
) -> OrderEstimate:
    if not bool((squared > 0).all()):
        raise ValueError(
            f"a squared error is not positive ({squared.tolist()}): too few paths to tell it from its noise, or the "
            "scheme is exact here"
        )
    order = float(weights @ squared.log()) / 2.0
    half_width = deviation * float(torch.special.ndtri(torch.tensor(0.5 + level / 2.0, dtype=torch.float64)))
    interval = (order - half_width, order + half_width)
    return OrderEstimate(order, interval, list(step_sizes), squared.sqrt().tolist())


def _local_deviations(
    scheme: Integrator, sde: BaseSDE, starts: Tensor, h: float, paths: int, seed: int, fine_steps: int
) -> tuple[Tensor, Increment]:
    """One-step deviations (starts, paths, dim) and the increments over the step."""
    x0 = starts.unsqueeze(1).expand(-1, paths, -1).contiguous()
    shape = (*x0.shape[:-1], sde.brownian_dim(x0))
    path = BrownianPath(shape, num_steps=fine_steps, seed=seed, t1=h, dtype=starts.dtype, device=starts.device)
    drawn = start_normals(0)  # the same for all step sizes

    def shared(like: Tensor) -> Tensor:
        """All paths from a start have its velocity."""
        return drawn(like[:, :1]).expand_as(like)

    fine = _solve(best_scheme(sde), sde, x0, path, fine_steps, shared)
    deviation = _solve(scheme, sde, x0, path, 1, shared) - fine
    return deviation, path.increment(0, 0.0, h, Needs.SPACE_TIME_AREA | Needs.LEVY_AREA)


def _squared_mean(deviation: Tensor, increment: Increment) -> tuple[Tensor, Tensor]:
    """The average over starts of ‖E[D | start]‖², unbiased, and the variance of that estimate."""
    features = _mean_zero_polynomials(increment)
    design = torch.cat((torch.ones_like(features[..., :1]), features), dim=-1)
    coefficients = torch.linalg.lstsq(design, deviation).solution
    residual = deviation - design @ coefficients
    starts, paths, size = design.shape
    covariance = residual.mT @ residual / (paths - size)
    # The constant's own variance is the residual's times the first entry of (designᵀ design)⁻¹.
    leverage = torch.linalg.inv(design.mT @ design)[:, 0, 0]
    noise = covariance * leverage.view(-1, 1, 1)
    mean = coefficients[:, 0, :]
    squared = mean.square().sum(-1) - noise.diagonal(dim1=-2, dim2=-1).sum(-1)
    variance = 4.0 * torch.einsum("si,sij,sj->s", mean, noise, mean) + 2.0 * noise.square().sum((-2, -1))
    return squared.mean(), variance.sum() / starts**2


def _mean_zero_polynomials(increment: Increment) -> Tensor:
    """Hermite polynomials of (W, H) up to degree 3 in few dimensions and 1 in many, and the Lévy areas' free part."""
    assert increment.H is not None
    assert increment.A is not None
    m = increment.W.shape[-1]
    w, eta = increment.W / math.sqrt(increment.dt), increment.H * math.sqrt(12.0 / increment.dt)
    normal = torch.cat((w, eta), dim=-1)
    powers = [torch.ones_like(normal), normal, normal.square() - 1.0, normal.pow(3) - 3.0 * normal]
    columns = []
    for degree in range(1, 4 if m <= 4 else 2):
        for chosen in combinations_with_replacement(range(2 * m), degree):
            factors = [powers[chosen.count(index)][..., index] for index in sorted(set(chosen))]
            columns.append(torch.stack(factors).prod(0))
    row, column = torch.triu_indices(m, m, 1)
    expected = increment.H.unsqueeze(-1) * increment.W.unsqueeze(-2)
    free = increment.A - (expected - expected.mT)
    return torch.cat((torch.stack(columns, dim=-1), free[..., row, column] / increment.dt), dim=-1)
