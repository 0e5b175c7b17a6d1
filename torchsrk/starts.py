"""The shapes of points: where chains start, given or drawn, and draws of targets that stand for several."""

from __future__ import annotations

from torch import Size, Tensor
from torch.distributions import Distribution


def drawn_starts(initial: Distribution, chains: int, shape: Size) -> Tensor:
    """(chains, *shape), drawn for every entry on its own."""
    own = initial.batch_shape + initial.event_shape
    missing = shape[: max(0, len(shape) - len(own))]
    if missing + own == shape:
        return initial.sample(Size((chains, *missing)))
    batch = shape[: max(0, len(shape) - len(initial.event_shape))]
    try:
        points = initial.expand(batch).sample(Size((chains,)))
    except RuntimeError:
        points = None
    if points is None or points.shape != (chains, *shape):
        raise ValueError(
            f"initial draws points of shape {tuple(own)}, which don't broadcast to the {tuple(shape)} of the batch and "
            "event shape: give a distribution of one point"
        )
    return points


def given_starts(initial: Tensor, chains: int, shape: Size) -> Tensor:
    """(chains, *shape): only a dimension more than ``shape`` has is one of chains."""
    try:
        if initial.ndim <= len(shape):
            initial = initial.expand(shape)
        return initial.expand(chains, *shape)
    except RuntimeError:
        raise ValueError(
            f"initial points of shape {tuple(initial.shape)} don't broadcast to {chains} chains of {tuple(shape)}: "
            f"give {tuple(shape)}, where all chains start, or {(chains, *shape)}, a start for every chain"
        ) from None


def with_more_dimensions(tensor: Tensor, count: int) -> Tensor:
    """So many dimensions of size 1 after the first, which holds the chains."""
    return tensor.reshape(tensor.shape[:1] + (1,) * count + tensor.shape[1:])


def spread_over(points: Tensor, draws: int, own: Size, batch_shape: Size) -> Tensor:
    """Points (draws · copies, *own, *event) as (draws, *batch_shape, *event), where ``own`` broadcasts to the batch."""
    event, rank = points.shape[1 + len(own) :], len(batch_shape)
    own = Size((1,) * (rank - len(own)) + tuple(own))
    copies = [size // single for size, single in zip(batch_shape, own, strict=True)]
    split = points.reshape(draws, *copies, *own, *event)
    pairs = [axis for i in range(rank) for axis in (1 + i, 1 + rank + i)]
    return split.permute(0, *pairs, *range(1 + 2 * rank, split.ndim)).reshape(draws, *batch_shape, *event)
