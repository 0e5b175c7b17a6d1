"""A density on a constrained space as a potential on all of ℝⁿ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Size, Tensor
from torch.distributions import Transform, biject_to, constraints
from torch.distributions.transforms import ComposeTransform

from .base import Potential, check_dim
from .interior import interior


@runtime_checkable
class Constrained(Protocol):
    """What a potential in unconstrained coordinates says of the points on a support that these stand for.

    Whatever reads draws of such a potential (``tune``, ``diagnose``, ``to_arviz``, DiffusionDistribution) reads points.
    """

    event_shape: Size
    support: constraints.Constraint

    @property
    def is_identity(self) -> bool: ...

    def log_density(self, point: Tensor) -> Tensor: ...

    def constrain(self, x: Tensor) -> Tensor: ...

    def unconstrain(self, point: Tensor) -> Tensor: ...


class UnconstrainedPotential(Potential):
    """f(z) = -log p(T(z)) - log|det T'(z)|, the energy of z when T(z) has the density p on the given support.

    T is the bijection from ℝⁿ that ``torch.distributions.biject_to`` has for the support, and for the Cholesky factors
    and covariance matrices that it has none for, one from the entries of a triangle.

    Args:
        log_density: points (..., *batch_shape, *event_shape) to log densities (..., *batch_shape), up to a constant.
        event_shape: the shape of a point.
        support: a constraint from ``torch.distributions.constraints``.
        batch_shape: that of a batch of densities with parameters of their own.
    """

    dim: int

    def __init__(
        self,
        log_density: Callable[[Tensor], Tensor],
        event_shape: Sequence[int],
        support: constraints.Constraint,
        batch_shape: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.log_density = log_density
        self.event_shape, self.support = Size(event_shape), support
        _check_parts(support, self.event_shape)
        self.transform = bijection(support)
        self._batch_rank = len(batch_shape)
        free_shape = self.transform.inverse_shape(Size(batch_shape) + self.event_shape)
        self._free_shape = Size(free_shape[self._batch_rank :])
        self.dim = math.prod(self._free_shape)

    @property
    def is_identity(self) -> bool:
        """Whether T leaves points as they are: their support is all of ℝⁿ."""
        base = self.support.base_constraint if isinstance(self.support, constraints.independent) else self.support
        return base is constraints.real

    def forward(self, x: Tensor) -> Tensor:
        check_dim(x, self.dim, "the unconstrained point")
        free = x.reshape(x.shape[:-1] + self._free_shape)
        point = self.transform(free)
        log_density = self.log_density(point)
        if not isinstance(log_density, Tensor) or log_density.shape != x.shape[:-1]:
            given = tuple(log_density.shape) if isinstance(log_density, Tensor) else type(log_density).__name__
            raise ValueError(
                f"a log density is one number a point: for points {tuple(point.shape)} expected "
                f"{tuple(x.shape[:-1])}, got {given}"
            )
        log_volume = self.transform.log_abs_det_jacobian(free, point)
        if log_volume.ndim >= x.ndim:  # one number for every entry of an event
            log_volume = log_volume.flatten(x.ndim - 1).sum(-1)
        return -(log_density + log_volume)

    def constrain(self, x: Tensor) -> Tensor:
        """T(x), (..., *event_shape), for x (..., dim); inside the support whatever x is, rounding or not."""
        return interior(self.transform(x.reshape(x.shape[:-1] + self._free_shape)), self.support)

    def unconstrain(self, point: Tensor) -> Tensor:
        """The x with T(x) = point."""
        free = self.transform.inv(point)
        return free.reshape(*free.shape[: free.ndim - len(self._free_shape)], self.dim)


def bijection(support: constraints.Constraint) -> Transform:
    """The map from ℝⁿ onto the support."""
    support = _without_infinite_bound(without_mixture(support))
    if support is constraints.lower_cholesky:
        return TriangleToCholesky()
    if support is constraints.positive_definite:
        return ComposeTransform([TriangleToCholesky(), CholeskyToCovariance()])
    try:
        return biject_to(support)
    except NotImplementedError:
        raise ValueError(
            f"torch knows no map from all of ℝⁿ onto {support}: a diffusion needs one. Register it with "
            "torch.distributions.biject_to.register, or give the density on an unconstrained space."
        ) from None


def without_mixture(support: Any) -> Any:
    """The components' support, for that of a MixtureSameFamily: newer versions of torch wrap it."""
    return support.base_constraint if type(support).__name__ == "MixtureSameFamilyConstraint" else support


def _without_infinite_bound(support: constraints.Constraint) -> constraints.Constraint:
    """A half-line, for an interval that ends at infinity: torch's map onto an interval is NaN there."""
    if not isinstance(support, constraints.interval):
        return support
    is_infinite = torch.as_tensor(support.upper_bound).isinf()
    if is_infinite.any() and not is_infinite.all():
        raise ValueError("a batch of intervals can't have some that end at infinity and some that don't: split it")
    return constraints.greater_than_eq(support.lower_bound) if is_infinite.all() else support


def _check_parts(support: constraints.Constraint, event_shape: Size) -> None:
    """One clear error where parts side by side are not those of a point: torch tells it at the first map, by a number.

    Points come with dimensions of particles before their own: parts lie along a dimension counted from the end.
    """
    base = support.base_constraint if isinstance(support, constraints.independent) else support
    if not isinstance(base, (constraints.cat, constraints.stack)):
        return
    lengths = base.lengths if isinstance(base, constraints.cat) else [1] * len(base.cseq)
    if -len(event_shape) <= base.dim < 0 and sum(lengths) == event_shape[base.dim]:
        return
    if isinstance(base, constraints.cat):
        name, given = "cat", f"lengths={lengths} with dim={base.dim}"
        wanted = "dim=-1 and, in lengths=, the number of entries on each support (by default one)"
    else:
        name, given = "stack", f"{len(lengths)} supports with dim={base.dim}"
        wanted = "dim=-1 and a support for every entry"
    raise ValueError(
        f"the supports of constraints.{name} don't make up a point of shape {tuple(event_shape)}: got {given}; give "
        f"{wanted}"
    )


class TriangleToCholesky(Transform):
    """The entries of a lower triangle, row by row and with the diagonal's logarithms, to the matrix."""

    domain = constraints.real_vector
    codomain = constraints.lower_cholesky
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TriangleToCholesky)

    def _call(self, x: Tensor) -> Tensor:
        size = _side(x.shape[-1])
        rows, columns = torch.tril_indices(size, size, device=x.device)
        matrix = x.new_zeros(*x.shape[:-1], size, size)
        matrix[..., rows, columns] = torch.where(rows == columns, x.exp(), x)
        return matrix

    def _inverse(self, y: Tensor) -> Tensor:
        rows, columns = torch.tril_indices(y.shape[-1], y.shape[-1], device=y.device)
        entries = y[..., rows, columns]
        return torch.where(rows == columns, entries.clamp_min(torch.finfo(y.dtype).tiny).log(), entries)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return y.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Size:
        return Size((*shape[:-1], _side(shape[-1]), _side(shape[-1])))

    def inverse_shape(self, shape: Sequence[int]) -> Size:
        return Size((*shape[:-2], shape[-1] * (shape[-1] + 1) // 2))


class CholeskyToCovariance(Transform):
    """L to LLᵀ; volumes are those of the lower triangles."""

    domain = constraints.lower_cholesky
    codomain = constraints.positive_definite
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CholeskyToCovariance)

    def _call(self, x: Tensor) -> Tensor:
        return x @ x.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.linalg.cholesky(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        size = x.shape[-1]
        powers = torch.arange(size, 0, -1, dtype=x.dtype, device=x.device)
        return size * math.log(2.0) + (powers * x.diagonal(dim1=-2, dim2=-1).log()).sum(-1)


def _side(entries: int) -> int:
    """Of the triangle with so many entries."""
    return (math.isqrt(8 * entries + 1) - 1) // 2
