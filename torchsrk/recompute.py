"""Memory for time: a piece of a computation whose insides are computed again in the backward pass.

Not ``torch.utils.checkpoint``: it makes every backward pass *within* the piece, such as that of a potential's gradient,
compute the piece anew from its start, and keeps what it computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .reads import HiddenReadError, Reads, Replaced, drawn_again, generators_of, graph_ends, read_directly, version_of
from .transforms import is_transformed

Piece = Callable[[Tensor], tuple[Tensor, ...]]
Named = Mapping[str, Tensor]


def recomputed(piece: Piece, x: Tensor, own: Named = MappingProxyType({})) -> tuple[Tensor, ...]:
    """piece(x), with gradients to x and to whatever else the piece reads, and none of its insides kept.

    The piece must give the same when called again, and change nothing; torch's generators give it the same numbers
    again.

    Args:
        own: tensors that the piece may read out of sight, such as the parameters of a scripted module.
    """
    if is_transformed() or forward_ad._current_level >= 0:
        raise RuntimeError("torch.func and forward derivatives can't pass through recompute=True: use recompute=False")
    if not torch.is_grad_enabled():
        return piece(x)
    versions = {name: version_of(value) for name, value in own.items()}
    start = x.detach().requires_grad_(x.requires_grad)  # not x itself, which the piece may read on its own account
    with Reads(generators_of(x.device)) as reads:
        values = piece(start)
    is_known = any(value.requires_grad for value in (x, *own.values()))
    hidden = [] if is_known else [leaf for leaf in graph_ends(values)[0] if id(leaf) not in reads.made()]
    values = tuple(value.detach() for value in values)  # the graph dies, and with it what was made in it out of sight
    _check_unchanged([*(own[name] for name in own if version_of(own[name]) != versions[name]), *reads.changed()], own)
    outside = {id(value): value for value in (*own.values(), *reads.tensors()) if value.requires_grad}
    outside.pop(id(start), None)
    if hidden and not outside:  # else the backward pass will tell
        raise HiddenReadError(f"a tensor of shape {tuple(hidden[0].shape)} is read out of sight")
    reads.close()
    return _Recomputed.apply(piece, own, reads, values, x, *outside.values())


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, piece: Piece, own: Named, reads: Reads, values: tuple[Tensor, ...], x: Tensor, *outside: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.piece, ctx.own, ctx.reads = piece, own, reads
        ctx.save_for_backward(values[-1], x, *outside)
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """The piece is computed again on leaves of its own, x and the outside tensors detached.

        So the gradients are partial derivatives, also where one outside tensor is made from another: autograd itself
        goes on from there.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "what is recomputed can be differentiated once: with create_graph=True, solve with recompute=False"
            )
        _check_not_modified(ctx.reads.changed(), ctx.own)
        expected, x, *outside = ctx.saved_tensors
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            start, *copies = (value.detach().requires_grad_() for value in (x, *outside))
            with drawn_again(ctx.reads.drawn), Replaced(outside, copies) as replaced:
                values = ctx.piece(start)
            _check_same(values[-1].detach(), expected, x)
            able = [k for k, value in enumerate(values) if value.requires_grad]
            outputs = [values[k] for k in able]
            direct = read_directly(outputs, outside, {id(start), *replaced.leaves})
            inputs = (start, *copies, *(outside[k] for k in direct))
            # What is reached directly may lead on into a graph that others still need.
            options: dict[str, Any] = {"allow_unused": True, "retain_graph": bool(direct)}
            found = torch.autograd.grad(outputs, inputs, [slopes[k] for k in able], **options)
        return (None, None, None, None, *_added(found, len(copies) + 1, direct))


def _added(found: Sequence[Tensor | None], count: int, direct: Sequence[int]) -> list[Tensor | None]:
    """The first ``count`` gradients, x's first, with the rest added to those of the outside tensors they belong to."""
    gradients = list(found[:count])
    for k, more in zip(direct, found[count:], strict=True):
        first = gradients[k + 1]
        if more is not None:
            gradients[k + 1] = more if first is None else first + more
    return gradients


def _check_unchanged(changed: list[Tensor], own: Named) -> None:
    if changed:
        raise RuntimeError(
            f"the SDE changes {_name(changed[0], own)} in place, and recompute=True makes every step twice: the second "
            "time would change it again. Call .eval() on layers that keep statistics, or use recompute=False"
        )


def _check_not_modified(changed: list[Tensor], own: Named) -> None:
    if changed:
        raise RuntimeError(
            f"{_name(changed[0], own)}, which this solve has read, has been modified by an in-place operation before "
            "the backward pass, and recompute=True reads it again there: change it afterwards, or use recompute=False"
        )


def _check_same(found: Tensor, expected: Tensor, x: Tensor) -> None:
    """Up to rounding: not every kernel gives the same bits again."""
    tolerance = torch.finfo(x.dtype).eps ** 0.5
    if not (found - expected).abs().max() <= tolerance * torch.maximum(expected.abs().max(), x.abs().max()):
        raise RuntimeError(
            "made again for the backward pass, the same steps ended elsewhere: the SDE depends on something that "
            "changes between calls (a counter, numpy's random numbers). Use recompute=False"
        )


def _name(value: Tensor, own: Named) -> str:
    names = [repr(name) for name, other in own.items() if other is value]
    return f"its {names[0]}" if names else f"a tensor of shape {tuple(value.shape)}"
