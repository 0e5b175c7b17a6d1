"""Wasserstein-2 distances: exact, entropic, corrected for the bias of finite clouds, sliced, and between Gaussians."""

from __future__ import annotations

import importlib.util
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..brownian.noise import Stream, draw_uniform, fill_normal
from ..dtensors import is_sharded
from .clouds import centred, check_clouds, parts_of
from .libraries import samples_loss, transport
from .matching import Plan, optimal_plan

# geomloss's names for the ways to hold the pairs of points.
_BACKENDS = {"sinkhorn": "tensorized", "sinkhorn-online": "online", "sinkhorn-multiscale": "multiscale"}
METHODS = ("exact", *_BACKENDS)
_MOST_MULTISCALE = 3  # dimensions that geomloss cuts into cells
_WORTH_A_THREAD = 500  # points


class Estimate(NamedTuple):
    """Of a quantity that was estimated several times.

    Attributes:
        mean: over repeats.
        standard_error: of the mean.
    """

    mean: float
    standard_error: float


def wasserstein2_squared(
    x: Tensor,
    y: Tensor,
    method: str = "auto",
    *,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
    blur: float | None = None,
    scaling: float = 0.9,
) -> Tensor:
    """The squared Wasserstein-2 distance between two clouds; differentiable in the points.

    Args:
        x, y: (points, dim), of any two sizes.
        method: "exact" solves the transport problem on the CPU, in float64. Clouds of as many points and no weights are
            sorted in 1-D, and up to 64-D assigned by a compiled solver that needs no matrix of pairs and proves its
            plan optimal; beyond, or where it was not built, from 3-D on by lapx's Jonker-Volgenant solver. All
            others go by POT's network simplex. "sinkhorn" is geomloss's debiased divergence on the clouds' device,
            quicker on a GPU and a little low: with the default blur 0.99 of the exact value for 2,000 points, in 2-D
            and in 20-D (scripts/bench_scoring.py). It holds matrices of (points of x) × (points of y), as lapx and the
            simplex do. "sinkhorn-online" is the same number without them, in memory that grows with the points, for
            clouds of 50,000 and more; "sinkhorn-multiscale", in up to 3 dimensions, gets near it from coarse to fine,
            and is quicker. Both need KeOps (pip install torchsrk[keops]), which compiles when a form is first met.
            "auto" is "exact" for clouds on the CPU and "sinkhorn" elsewhere.
        x_weights, y_weights: non-negative, one a point; each is normalised to sum to 1. Uniform by default.
        blur: Sinkhorn's resolution, in the unit of x; by default a tenth of the median distance from a point of x to
            its nearest in y. Smaller is nearer to exact, and slower.
        scaling: Sinkhorn's annealing, between 0 and 1: nearer to 1 is nearer to exact, and slower.
    """
    if is_sharded(x) or is_sharded(y):
        raise TypeError(
            "one transport problem is solved by one process: gather the clouds, or give a subsample and repeats to "
            "corrected_wasserstein2_squared, which processes share out"
        )
    check_clouds(x=x, y=y)
    if method not in ("auto", *METHODS):
        raise ValueError(f"method is one of {', '.join(map(repr, ('auto', *METHODS)))}; got {method!r}")
    a, b = _weights("x_weights", x_weights, x), _weights("y_weights", y_weights, y)
    x, y = centred(x, y)
    if _is_exact(method, x):
        return _transported(x, y, optimal_plan(x, y, a, b))
    if blur is not None and not 0.0 < blur < math.inf:
        raise ValueError(f"blur is a positive length; got {blur!r}")
    if not 0.0 < scaling < 1.0:
        raise ValueError(f"scaling is between 0 and 1; got {scaling!r}")
    backend = _BACKENDS["sinkhorn" if method == "auto" else method]
    a, b = _equal(x) if a is None else a, _equal(y) if b is None else b
    return _sinkhorn(x, y, a, b, _default_blur(x, y) if blur is None else blur, scaling, backend)


def corrected_wasserstein2_squared(
    x: Tensor,
    x2: Tensor,
    y: Tensor,
    y2: Tensor,
    *,
    method: str = "auto",
    repeats: int | None = None,
    subsample: int | None = None,
    seed: int | None = None,
    blur: float | None = None,
    scaling: float = 0.9,
) -> Tensor | Estimate:
    """½[W²(x, y) + W²(x2, y2) - W²(x, x2) - W²(y, y2)]: the paper's estimator, whose bias vanishes for equal laws.

    x and x2 are independent clouds of one law, y and y2 of the other: of one cloud take its halves, ``x.chunk(2)``. A
    cloud that is given twice is refused. The value may be negative, and is not clipped.

    Args:
        x, x2, y, y2: (points, dim).
        method, blur, scaling: as for ``wasserstein2_squared``. With Sinkhorn all four distances are at one blur, by
            default that of x and y, so that what it takes off each cancels.
        repeats: draw that many times ``subsample`` points from each cloud, without replacement and afresh, and give
            the mean over repeats with its standard error. Needs ``seed``. Of clouds that are sharded over processes
            each makes some of the repeats.
    """
    if any(map(is_sharded, (x, x2, y, y2))):
        from ..distributed.distances import over_shards

        options: dict[str, Any] = {"method": method, "blur": blur, "scaling": scaling}
        options |= {"repeats": repeats, "subsample": subsample, "seed": seed}
        return over_shards(corrected_wasserstein2_squared, x, x2, y, y2, **options)
    check_clouds(x=x, x2=x2, y=y, y2=y2)
    if repeats is None:
        if subsample is not None or seed is not None:
            raise ValueError("subsample and seed go with repeats")
        _check_apart(x=x, x2=x2, y=y, y2=y2)
        return _corrected(x, x2, y, y2, method, blur, scaling)
    smallest = min(map(len, (x, x2, y, y2)))
    if repeats < 2 or subsample is None or seed is None or not 1 <= subsample <= smallest:
        raise ValueError(
            f"repeats needs at least 2 of them, a seed, and a subsample of 1 to {smallest} points (the smallest "
            f"cloud); got repeats={repeats}, seed={seed}, subsample={subsample}"
        )

    _check_apart(x=x, x2=x2, y=y, y2=y2)

    def value(repeat: int) -> Tensor:
        drawn = [
            cloud[_choose(len(cloud), subsample, seed, 4 * repeat + k, cloud.device)]
            for k, cloud in enumerate((x, x2, y, y2))
        ]
        return _corrected(drawn[0], drawn[1], drawn[2], drawn[3], method, blur, scaling).double()

    values = parts_of(value, repeats)
    return Estimate(float(values.mean()), float(values.std()) / math.sqrt(repeats))


def gaussian_wasserstein2_squared(m1: Tensor, S1: Tensor, m2: Tensor, S2: Tensor) -> Tensor:
    """‖m1 - m2‖² + tr(S1 + S2 - 2(S1^½ S2 S1^½)^½), between N(m1, S1) and N(m2, S2).

    Args:
        m1, m2: means, (dim,).
        S1, S2: covariances, (dim, dim).
    """
    for name, mean, covariance in (("first", m1, S1), ("second", m2, S2)):
        if mean.ndim != 1 or mean.shape != m1.shape or covariance.shape != (len(m1), len(m1)):
            raise ValueError(
                f"means are (dim,) and covariances (dim, dim); the {name} are {tuple(mean.shape)} and "
                f"{tuple(covariance.shape)}"
            )
        if not torch.allclose(covariance, covariance.mT) or torch.linalg.eigvalsh(covariance)[0] < -1e-6:
            raise ValueError(f"the {name} covariance is not symmetric and non-negative")
    root = _square_root(S1)
    cross = torch.linalg.eigvalsh(root @ S2 @ root).clamp(min=0.0).sqrt().sum()
    return (m1 - m2).square().sum() + S1.trace() + S2.trace() - 2.0 * cross


def sliced_wasserstein2_squared(x: Tensor, y: Tensor, *, projections: int = 128, seed: int) -> Tensor:
    """The mean of the squared one-dimensional distances along random directions (POT); cheap and differentiable.

    Args:
        x, y: (points, dim), of any two sizes.
        projections: how many directions.
        seed: of the directions.
    """
    check_clouds(x=x, y=y)
    if projections < 1:
        raise ValueError(f"projections is a positive number of directions; got {projections}")
    x, y = centred(x, y)
    directions = torch.empty(projections, x.shape[1], dtype=torch.float64, device=x.device)
    fill_normal(directions, seed=seed, stream=Stream.PROJECTION)
    directions /= directions.norm(dim=-1, keepdim=True)
    return transport().sliced_wasserstein_distance(x, y, projections=directions.mT.to(x.dtype), p=2).square()


def _check_apart(**clouds: Tensor) -> None:
    """A cloud is at distance 0 from itself, which corrects nothing."""
    for (one, a), (other, b) in combinations(clouds.items(), 2):
        if a is b or torch.equal(a, b):
            raise ValueError(
                f"{one} and {other} are the same points, and the estimate would be biased: x, x2, y and y2 are four "
                "independent clouds. Of one cloud of each law give the halves: *x.chunk(2), *y.chunk(2)"
            )


def _corrected(x: Tensor, x2: Tensor, y: Tensor, y2: Tensor, method: str, blur: float | None, scaling: float) -> Tensor:
    pairs = ((x, y), (x2, y2), (x, x2), (y, y2))
    if _is_exact(method, x):
        values = _exact_side_by_side([centred(*pair) for pair in pairs])
    else:
        blur = _default_blur(x, y) if blur is None else blur
        values = [wasserstein2_squared(*pair, method, blur=blur, scaling=scaling) for pair in pairs]
    return 0.5 * (values[0] + values[1] - values[2] - values[3])


def _is_exact(method: str, x: Tensor) -> bool:
    return method == "exact" or (method == "auto" and x.device.type == "cpu")


def _exact_side_by_side(pairs: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Plans by as many threads as torch may use; what they cost here, as a thread has no graph of its caller's."""
    many = min(len(pairs), torch.get_num_threads()) if max(map(len, pairs[0])) >= _WORTH_A_THREAD else 1
    if many == 1:
        return [_transported(x, y, optimal_plan(x, y, None, None)) for x, y in pairs]
    with ThreadPoolExecutor(many) as pool:
        plans = list(pool.map(lambda pair: optimal_plan(pair[0], pair[1], None, None), pairs))
    return [_transported(x, y, plan) for (x, y), plan in zip(pairs, plans, strict=True)]


def _transported(x: Tensor, y: Tensor, plan: Plan) -> Tensor:
    found = Plan(*(part.to(x.device) for part in plan))
    return found.cost(x.double(), y.double()).to(x.dtype)


def _equal(cloud: Tensor) -> Tensor:
    return cloud.new_full((len(cloud),), 1.0 / len(cloud))


def _sinkhorn(x: Tensor, y: Tensor, a: Tensor, b: Tensor, blur: float, scaling: float, backend: str) -> Tensor:
    if backend != "tensorized" and importlib.util.find_spec("pykeops") is None:
        raise ImportError(f"Sinkhorn's {backend} form needs KeOps: pip install torchsrk[keops]")
    if backend == "multiscale" and x.shape[1] > _MOST_MULTISCALE:
        raise ValueError(
            f'"sinkhorn-multiscale" is for up to {_MOST_MULTISCALE} dimensions; the points have {x.shape[1]}: take '
            '"sinkhorn-online"'
        )
    # geomloss's cost is half the squared distance, and so is its value.
    loss = samples_loss()("sinkhorn", p=2, blur=blur, scaling=scaling, debias=True, backend=backend)
    # KeOps reads numbers in their order in memory.
    return 2.0 * loss(*(tensor.contiguous() for tensor in (a, x, b, y))).squeeze()


def _default_blur(x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        nearest = torch.cdist(x[:512], y).min(-1).values
        spread = torch.cat((x, y)).std(0).norm()
        # Clouds that share points have neighbours at distance 0: there a thousandth of the spread resolves enough.
        return max(float(nearest.median()) / 10.0, 1e-3 * float(spread), 1e-12)


def _weights(name: str, weights: Tensor | None, cloud: Tensor) -> Tensor | None:
    if weights is None:
        return None
    if weights.shape != (len(cloud),) or weights.dtype != cloud.dtype or weights.device != cloud.device:
        raise ValueError(
            f"{name} is ({len(cloud)},), one a point, in {cloud.dtype} on {cloud.device}; got {tuple(weights.shape)} "
            f"in {weights.dtype} on {weights.device}"
        )
    if not bool(weights.isfinite().all()) or bool((weights < 0).any()) or not float(weights.sum()) > 0.0:
        raise ValueError(f"{name} must be finite and non-negative, and not all zero")
    return weights / weights.sum()


def _square_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0.0).sqrt()) @ vectors.mT


def _choose(total: int, count: int, seed: int, step: int, device: torch.device) -> Tensor:
    uniform = draw_uniform((total, 1), seed=seed, stream=Stream.SUBSAMPLE, step=step, device=torch.device("cpu"))
    return uniform[:, 0].argsort()[:count].to(device)
