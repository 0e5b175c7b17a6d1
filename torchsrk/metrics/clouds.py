"""What every distance between clouds of particles checks, and the tiles that large ones are computed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Tile = tuple[slice, slice, int]
TILE = 1024  # points a side: a tile of float32 distances is 4 MB, and stays in cache through its few passes


def check_clouds(**clouds: Tensor) -> None:
    """One clear error if the clouds are not (points, dim) of one dim, dtype and device, non-empty and finite."""
    first_name, first = next(iter(clouds.items()))
    for name, cloud in clouds.items():
        if not isinstance(cloud, Tensor) or cloud.dtype not in (torch.float32, torch.float64):
            given = cloud.dtype if isinstance(cloud, Tensor) else type(cloud).__name__
            raise TypeError(f"{name} is a float32 or float64 tensor (points, dim); got {given}")
        if cloud.ndim != 2 or 0 in cloud.shape:
            raise ValueError(f"{name} is (points, dim) with at least one point; got shape {tuple(cloud.shape)}")
        if cloud.shape[1] != first.shape[1]:
            raise ValueError(f"{first_name} has dimension {first.shape[1]} and {name} has {cloud.shape[1]}")
        if cloud.dtype != first.dtype or cloud.device != first.device:
            raise TypeError(
                f"{first_name} is {first.dtype} on {first.device} and {name} is {cloud.dtype} on {cloud.device}: move "
                "one to the other with .to(...)"
            )
        if not bool(cloud.isfinite().all()):
            raise ValueError(f"{name} has {int((~cloud.isfinite()).any(-1).sum())} points that are infinite or NaN")


def centred(*clouds: Tensor) -> tuple[Tensor, ...]:
    """The clouds moved by one vector to around 0, so that squared norms don't swallow the differences."""
    centre = torch.cat([cloud.detach().mean(0, keepdim=True, dtype=torch.float64) for cloud in clouds]).mean(0)
    return tuple(cloud - centre.to(cloud.dtype) for cloud in clouds)


def tiles(rows: int, columns: int, *, symmetric: bool) -> Iterator[Tile]:
    """Slices of rows and columns, and how often the tile counts: 2 off the diagonal of a symmetric matrix."""
    for i in range(0, rows, TILE):
        for j in range(i if symmetric else 0, columns, TILE):
            yield slice(i, i + TILE), slice(j, j + TILE), 2 if symmetric and j > i else 1


def total_of_tiles(blocks: Sequence[Tile], value: Callable[[slice, slice, int], Tensor], like: Tensor) -> Tensor:
    """Σ count · value(rows, columns, count), a float64 number for every tile, one after another.

    Processes that hold the same clouds share out the tiles: see ``sharing``.
    """
    found = parts_of(lambda k: blocks[k][2] * value(*blocks[k]), len(blocks))
    total = torch.zeros((), dtype=torch.float64, device=like.device)
    for part in found:
        total += part
    return total


def one_by_one(part: Callable[[int], Tensor], count: int) -> Tensor:
    """All parts of a sum, made here."""
    first = part(0)
    found = first.new_empty(count)  # kept apart, small tensors would break up the memory that tiles come and go in
    found[0] = first
    for k in range(1, count):
        found[k] = part(k)
    return found


Parts = Callable[[Callable[[int], Tensor], int], Tensor]
_parts: ContextVar[Parts] = ContextVar("parts", default=one_by_one)  # other threads have their own


@contextmanager
def sharing(parts: Parts) -> Iterator[None]:
    """Within: float64 numbers part(0), part(1) and so on come from ``parts(part, count)``, in this order."""
    before = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(before)


def parts_of(part: Callable[[int], Tensor], count: int) -> Tensor:
    """part(0) to part(count - 1), float64 numbers, which processes may share out: (count,)."""
    return _parts.get()(part, count)


def squared_distance_factors(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """L and R with ‖x_i - y_j‖² = (L R)_ij: one matrix product gives a tile, up to rounding below 0."""
    x_norm, y_norm = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    left = torch.cat((-2.0 * x, x_norm, torch.ones_like(x_norm)), dim=1)
    right = torch.cat((y, torch.ones_like(y_norm), y_norm), dim=1)
    return left, right.mT
