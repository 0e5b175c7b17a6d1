"""Ways to write an operation by simpler ones, where torch has none, or one by operations without a C form.

Each gives NotImplemented for options that it does not know, and the step is refused then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


class _Windows:
    """The windows that a convolution or a pool slides over the last dimensions of a tensor, as places in these.

    Attributes:
        padded: sizes with the padding.
        out: the windows along each dimension.
        places: (entries of a window · windows) places in the padded dimensions, made one.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        apart: Sequence[int],
    ) -> None:
        self._pad = list(pad)
        self.padded = [size + 2 * p for size, p in zip(sizes, pad, strict=True)]
        self.entries = math.prod(kernel)
        self.out = [
            (size - a * (k - 1) - 1) // s + 1 for size, k, s, a in zip(self.padded, kernel, stride, apart, strict=True)
        ]
        starts = itertools.product(*map(range, kernel))
        self.places = [
            self._flat([w * s + k * a for w, s, k, a in zip(window, stride, at, apart, strict=True)])
            for at in starts
            for window in itertools.product(*map(range, self.out))
        ]

    def _flat(self, at: Sequence[int]) -> int:
        flat = 0
        for place, size in zip(at, self.padded, strict=True):
            flat = flat * size + place
        return flat

    def of(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """(batch, channels, entries of a window, windows)."""
        dims = len(self.padded)
        if any(self._pad):
            x = aten.constant_pad_nd(x, [p for pad in reversed(self._pad) for p in (pad, pad)], fill)
        flat = x.reshape(*x.shape[:-dims], math.prod(self.padded))
        places = torch.tensor(self.places, device=x.device)
        return flat.index_select(-1, places).reshape(*flat.shape[:-1], self.entries, -1)

    def added(self, parts: Tensor) -> Tensor:
        """The transpose of ``of``: what windows share is added up."""
        zeros = parts.new_zeros(*parts.shape[:-2], math.prod(self.padded))
        places = torch.tensor(self.places, device=parts.device)
        whole = zeros.index_add(-1, places, parts.reshape(*parts.shape[:-2], -1))
        whole = whole.reshape(*parts.shape[:-2], *self.padded)
        for d, (size, pad) in enumerate(zip(self.padded, self._pad, strict=True)):
            whole = whole.narrow(d - len(self.padded), pad, size - 2 * pad)
        return whole


def _by_group(x: Tensor, groups: int) -> Tensor:
    """(batch, channels, entries, windows) as (batch, group, channels and entries of it, windows)."""
    return x.reshape(x.shape[0], groups, -1, x.shape[-1])


def _is_plain(x: Tensor, weight: Tensor, transposed: bool) -> bool:
    return not transposed and x.ndim == weight.ndim and not x.is_complex()


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    pad: Any,
    apart: Any,
    transposed: bool,
    _: Any,
    groups: int,
) -> Tensor:
    if not _is_plain(x, weight, transposed):
        return NotImplemented
    windows = _Windows(x.shape[2:], weight.shape[2:], stride, pad, apart)
    parts = _by_group(windows.of(x), groups)
    made = weight.reshape(1, groups, -1, parts.shape[-2]).expand(len(x), -1, -1, -1) @ parts
    made = made.reshape(len(x), len(weight), *windows.out)
    return made if bias is None else made + bias.reshape(-1, *[1] * len(windows.out))


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, pad: Any, apart: Any, transposed: bool,
    _: Any, groups: int, wanted: list[bool],
) -> Any:  # fmt: skip
    """Of the input alone: weights are no part of a state."""
    if not _is_plain(x, weight, transposed) or wanted[1] or wanted[2]:
        return NotImplemented
    windows = _Windows(x.shape[2:], weight.shape[2:], stride, pad, apart)
    per_group = weight.reshape(1, groups, len(weight) // groups, -1).expand(len(x), -1, -1, -1)
    parts = per_group.mT @ grad.reshape(len(x), groups, len(weight) // groups, -1)
    return windows.added(parts.reshape(len(x), x.shape[1], windows.entries, -1)), None, None


def _pool(x: Tensor, kernel: Any, stride: Any, pad: Any, apart: Any = (1,)) -> _Windows:
    kernel = [*kernel, *kernel][:2]
    pairs = [[*given, *given][:2] for given in (stride or kernel, pad, apart)]
    return _Windows(x.shape[-2:], kernel, *pairs)


def _average_pool(
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    pad: Any = (0,),
    ceil: bool = False,
    counts_pad: bool = True,
    by: Any = None,
) -> Tensor:
    if ceil or by is not None or (any(pad) and not counts_pad):
        return NotImplemented
    windows = _pool(x, kernel, stride, pad)
    return windows.of(x).mean(-2).reshape(*x.shape[:-2], *windows.out)


def _average_pool_backward(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any, pad: Any, ceil: bool, counts_pad: bool, by: Any
) -> Tensor:
    if ceil or by is not None or (any(pad) and not counts_pad):
        return NotImplemented
    windows = _pool(x, kernel, stride, pad)
    each = grad.flatten(-2).unsqueeze(-2) / windows.entries
    return windows.added(each.expand(*each.shape[:-2], windows.entries, each.shape[-1]))


def _largest_pool(
    x: Tensor, kernel: Any, stride: Any = (), pad: Any = (0,), apart: Any = (1,), ceil: bool = False
) -> Any:
    if ceil or any(pad):
        return NotImplemented
    windows = _pool(x, kernel, stride, pad, apart)
    largest, at = windows.of(x).max(-2)
    shape = (*x.shape[:-2], *windows.out)
    table = torch.tensor(windows.places, device=x.device).reshape(windows.entries, -1)
    places = table[at, torch.arange(at.shape[-1], device=x.device)]
    return largest.reshape(shape), places.reshape(shape)


def _largest_pool_backward(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any, pad: Any, apart: Any, ceil: bool, places: Tensor
) -> Tensor:
    if ceil or any(pad):
        return NotImplemented
    windows = _pool(x, kernel, stride, pad, apart)
    parts = windows.of(x)
    first = parts.max(-2, keepdim=True)[1]
    is_first = torch.arange(windows.entries, device=x.device).unsqueeze(-1) == first
    return windows.added(torch.where(is_first, grad.flatten(-2).unsqueeze(-2), 0.0))


def _distances(a: Tensor, b: Tensor, p: float, mode: int | None) -> Tensor:
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 2.0:
        return apart.square().sum(-1).sqrt()
    return apart.abs().sum(-1) if p == 1.0 else NotImplemented


def _distances_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 2.0:
        ratio = torch.where(distances == 0.0, 0.0, grad / distances)
        return (ratio.unsqueeze(-1) * apart).sum(-2)
    return (grad.unsqueeze(-1) * apart.sign()).sum(-2) if p == 1.0 else NotImplemented


def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, total: Tensor, dropout: float, causal: bool,
    *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        return NotImplemented
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    if causal:
        below = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = torch.where(below, scores, -math.inf)
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = scores.softmax(-1)
    by_weight = grad @ value.mT
    by_score = weights * (by_weight - (by_weight * weights).sum(-1, keepdim=True)) * scale
    return by_score @ key, by_score.mT @ query, weights.mT @ grad


def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand_a: list[int], expand_b: list[int], expand_c: list[int], over: list[int],
    unroll: int = 1,
) -> Tensor:  # fmt: skip
    for d in expand_a:
        a = a.unsqueeze(d)
    for d in expand_b:
        b = b.unsqueeze(d)
    for d in expand_c:
        c = c.unsqueeze(d)
    return (a * b * c).sum(over) if over else a * b * c


def _interpolation_backward(
    grad: Tensor, size: list[int], input_size: list[int], align_corners: bool, scales: float | None = None
) -> Tensor:
    """It is linear: what it makes of every single entry is its matrix."""
    each = torch.eye(input_size[-1], dtype=grad.dtype, device=grad.device).unsqueeze(0)
    return grad @ aten.upsample_linear1d(each, size, align_corners, scales).squeeze(0).mT


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, rest: int, groups: int, eps: float
) -> Any:
    apart = x.reshape(batch, groups, -1)
    mean = apart.mean(-1, keepdim=True)
    inverse_deviation = torch.rsqrt((apart - mean).square().mean(-1, keepdim=True) + eps)
    out = ((apart - mean) * inverse_deviation).reshape(x.shape)
    shape = (channels, *[1] * (x.ndim - 2))
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    return out, mean.squeeze(-1), inverse_deviation.squeeze(-1)


def _shrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    return torch.where((x >= -lambd) & (x <= lambd), 0.0, grad)


def _tanh_backward(slope: Tensor, out: Tensor) -> Tensor:
    return slope * (1 - out * out)


def _sigmoid_backward(slope: Tensor, out: Tensor) -> Tensor:
    return slope * (out * (1 - out))


def _threshold_backward(slope: Tensor, x: Tensor, threshold: float) -> Tensor:
    return torch.where(x <= threshold, 0.0, slope)


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _silu_backward(slope: Tensor, x: Tensor) -> Tensor:
    gate = torch.sigmoid(x)
    return slope * gate * (1 + x * (1 - gate))


def _select_backward(grad: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    """As torch's own, but without zeros beside what is the only entry."""
    return grad.unsqueeze(dim) if sizes[dim] == 1 else aten.select_scatter(grad.new_zeros(sizes), grad, dim, index)


def _select_scatter(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    places = _line(x.shape[dim], device=x.device).view([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])
    return torch.where(places == index % x.shape[dim], part.unsqueeze(dim).expand(x.shape), x)


def _lower_triangle(x: Tensor, diagonal: int = 0) -> Tensor:
    rows, columns = x.shape[-2:]
    if rows == columns == 1:
        return x.clone() if diagonal >= 0 else torch.zeros_like(x)
    down, across = _line(rows, device=x.device).unsqueeze(-1), _line(columns, device=x.device)
    is_below = across - down <= diagonal
    return is_below & x if x.dtype == torch.bool else torch.where(is_below, x, aten.scalar_tensor(0, dtype=x.dtype))


def _line(end: int, **form: Any) -> Tensor:
    return aten.arange.start_step(0, end, 1, **form)


def _transposed(x: Tensor, first: int, second: int) -> tuple[Any, tuple[Any, ...]]:
    order = list(range(x.ndim))
    if order:
        order[first], order[second] = order[second], order[first]
    return aten.permute.default, (x, order)


def _transposed_matrix(x: Tensor) -> tuple[Any, tuple[Any, ...]]:
    return aten.permute.default, (x, list(range(x.ndim))[::-1])


def _viewed(x: Tensor, size: Sequence[int]) -> tuple[Any, tuple[Any, ...]]:
    return aten.view.default, (x, size)


def _made_simpler(operation: Callable[..., tuple[Any, tuple[Any, ...]]]) -> Callable[..., Any]:
    def made(*args: Any) -> Any:
        simpler, given = operation(*args)
        return simpler(*given)

    return made


# Operations that are one other operation each: which one, and what that is given.
SIMPLER: dict[Any, Callable[..., tuple[Any, tuple[Any, ...]]]] = {
    aten.transpose.int: _transposed,
    aten.t.default: _transposed_matrix,
    aten._unsafe_view.default: _viewed,
}


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(-1)


def _unbound(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(x.select(dim, place) for place in range(x.shape[dim]))


def _larger(a: Tensor, b: Tensor) -> Tensor:
    return a | b if a.dtype == b.dtype == torch.bool else NotImplemented


def _smaller(a: Tensor, b: Tensor) -> Tensor:
    return a & b if a.dtype == b.dtype == torch.bool else NotImplemented


def _strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """A part of a tensor as numbers and slices pick it, if they do: torch's gradient of what is written in place takes
    it by strides."""
    if not x.is_contiguous() or 0 in x.shape:
        return NotImplemented
    apart = [math.prod(x.shape[dim + 1 :]) for dim in range(x.ndim)]
    starts, rest = list[int](), 0 if offset is None else offset - int(x.storage_offset())
    for step in apart:
        start, rest = divmod(rest, step)
        starts.append(start)
    taken: dict[int, tuple[int, int]] = {}  # of dimensions of x: how many entries, and how far apart
    free = iter(range(x.ndim))
    for count, step in zip(size, stride, strict=True):
        if count > 1:
            dim = next((d for d in free if step and step % apart[d] == 0), None)
            if dim is None or starts[dim] + (count - 1) * (step // apart[dim]) >= x.shape[dim]:
                return NotImplemented
            taken[dim] = count, step // apart[dim]
    if 0 in size or any(start < 0 or start >= there for start, there in zip(starts, x.shape, strict=True)):
        return NotImplemented
    for dim in reversed(range(x.ndim)):
        count, step = taken.get(dim, (0, 0))
        if not count:
            x = x.select(dim, starts[dim])
        elif (count, step) != (x.shape[dim], 1):
            x = x[(slice(None),) * dim + (slice(starts[dim], starts[dim] + (count - 1) * step + 1, step),)]
    for dim, count in enumerate(size):
        x = x.unsqueeze(dim) if count == 1 else x
    return x


OWN: dict[Any, Callable[..., Any]] = {
    aten.as_strided.default: _strided,
    aten.maximum.default: _larger,
    aten.minimum.default: _smaller,
    # torch's own would do, but ask around so much that a long series takes seconds.
    **{operation: _made_simpler(simpler) for operation, simpler in SIMPLER.items()},
    aten.arange.default: _line,
    aten.select_scatter.default: _select_scatter,
    aten.tril.default: _lower_triangle,
    # These import sympy for what they check: a third of a second.
    aten.unbind.int: _unbound,
    # As torch's own, without its wrapper: the backward pass of a long loop has thousands.
    aten.detach.default: aten.alias.default,
    aten.mv.default: _dot,
    aten.dot.default: _dot,
    aten.select_backward.default: _select_backward,
    aten.tanh_backward.default: _tanh_backward,
    aten.sigmoid_backward.default: _sigmoid_backward,
    aten.threshold_backward.default: _threshold_backward,
    aten.silu.default: _silu,
    aten.silu_backward.default: _silu_backward,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.avg_pool2d.default: _average_pool,
    aten.avg_pool2d_backward.default: _average_pool_backward,
    aten.max_pool2d_with_indices.default: _largest_pool,
    aten.max_pool2d_with_indices_backward.default: _largest_pool_backward,
    aten._cdist_forward.default: _distances,
    aten._cdist_backward.default: _distances_backward,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
    aten._trilinear.default: _trilinear,
    aten.upsample_linear1d_backward.default: _interpolation_backward,
    aten.native_group_norm.default: _group_norm,
    aten.hardshrink_backward.default: _shrink_backward,
    aten.softshrink_backward.default: _shrink_backward,
}
