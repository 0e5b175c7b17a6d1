"""Complex numbers as pairs of real ones.

C has no complex vectors. A graph that computes with complex tensors is run once more, each of them as its two parts,
and what is traced of that is a graph of real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from .fourier import Pair, from_complex, from_real, to_real

_REALS = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def has_complex(graph: fx.Graph) -> bool:
    """Whether a graph computes with complex numbers."""
    return any(_is_complex(node) for node in graph.nodes)


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    parts = (value,) if isinstance(value, Tensor) else tree_leaves(value)
    return any(isinstance(part, Tensor) and part.is_complex() for part in parts)


class InReals(fx.Interpreter):
    """Runs a graph with a Pair in the place of every complex tensor; ``particles`` marks their dimension.

    Raises:
        NotImplementedError: an operation on complex numbers is not known.
    """

    def __init__(self, module: fx.GraphModule, particles: int) -> None:
        super().__init__(module)
        self._particles = particles

    def run_node(self, n: fx.Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.op in ("placeholder", "get_attr") and _is_complex(n):
            whole = super().run_node(n)
            return Pair(*torch.view_as_real(whole.resolve_conj()).unbind(-1))
        if n.op != "call_function" or not (_is_complex(n) or _has_pair((args, kwargs))):
            return super().run_node(n)
        name = n.target._schema.name.removeprefix("aten::")  # type: ignore[union-attr]
        if name.startswith("_fft_") and any(n.args[0].meta["val"].shape[d] == self._particles for d in args[1]):  # type: ignore[union-attr]
            raise NotImplementedError("a step mixes its particles: a Fourier transform runs over them")
        if name in ("clone", "detach", "alias") and isinstance(args[0], Pair) and not isinstance(args[0].real, Tensor):
            return args[0]  # a number, as a factor is one
        rule = _RULES.get(name.removesuffix("_copy"))
        if rule is None and name.removesuffix("_copy") in _BY_PARTS:
            return _by_parts(_view(n.target), args, kwargs)
        if rule is None:
            raise NotImplementedError(f"a step uses {n.target} of complex numbers, which has no C form here")
        return rule(*args, **kwargs)


def _has_pair(value: Any) -> bool:
    return any(isinstance(leaf, Pair) for leaf in tree_leaves(value))


def _view(target: Any) -> Any:
    """The operation, or where it copies what is a view of its argument, the one that gives that."""
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::").removesuffix("_copy"))
    return getattr(packet, target._overloadname, target)


# ------------------------------------------------------------------------------------------------- what is linear

_BY_PARTS = {
    *(
        "slice",
        "select",
        "view",
        "_unsafe_view",
        "permute",
        "transpose",
        "t",
        "expand",
        "unsqueeze",
        "squeeze",
        "clone",
    ),
    *("alias", "detach", "index_select", "index", "gather", "neg", "sum", "mean", "cumsum", "flip", "roll", "diagonal"),
    *("constant_pad_nd", "cat", "stack", "slice_scatter", "select_scatter", "copy", "unbind", "split", "reshape"),
    *("split_with_sizes", "tril", "triu", "repeat", "index_put", "index_add", "scatter_add", "lift_fresh_copy"),
}


def _by_parts(target: Any, args: Any, kwargs: Any) -> Any:
    """An operation that does the same to real and to imaginary parts, and none to what is real."""

    def part(of: Callable[[Pair], Tensor]) -> Any:
        taken = tree_map(lambda leaf: of(leaf) if isinstance(leaf, Pair) else leaf, (args, kwargs))
        return target(*taken[0], **_real_options(taken[1]))

    real, imaginary = part(lambda pair: pair.real), part(lambda pair: pair.imaginary)
    if isinstance(real, (list, tuple)):
        return [Pair(*parts) for parts in zip(real, imaginary, strict=True)]
    return Pair(real, imaginary)


def _real_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: _REALS.get(value, value) if name == "dtype" else value for name, value in kwargs.items()}


def _pair(value: Any) -> Pair:
    """Anything as a complex number."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, Tensor):
        return Pair(value, torch.zeros_like(value))
    return Pair(complex(value).real, complex(value).imag)  # type: ignore[arg-type]


def _is_real(value: Any) -> bool:
    return not isinstance(value, (Pair, complex))


# ------------------------------------------------------------------------------------------------- arithmetic


def _add(a: Any, b: Any, alpha: Any = 1) -> Pair:
    b = b if isinstance(alpha, (int, float)) and alpha == 1 else _mul(b, alpha)
    if _is_real(b):
        return Pair(_pair(a).real + b, _imaginary_like(_pair(a).imaginary, b))
    if _is_real(a):
        return Pair(a + _pair(b).real, _imaginary_like(_pair(b).imaginary, a))
    a, b = _pair(a), _pair(b)
    return Pair(a.real + b.real, a.imaginary + b.imaginary)


def _imaginary_like(imaginary: Any, real: Any) -> Any:
    """An imaginary part, as large as it becomes with what is added to the other."""
    return imaginary + torch.zeros_like(real) if isinstance(real, Tensor) else imaginary


def _sub(a: Any, b: Any, alpha: Any = 1) -> Pair:
    return _add(a, _mul(_pair(b), -1.0), alpha) if not _is_real(b) else _add(a, -b, alpha)


def _mul(a: Any, b: Any) -> Any:
    if _is_real(a) and _is_real(b):
        return a * b
    if _is_real(b):
        return _pair(a).each(lambda part: part * b)
    if _is_real(a):
        return _pair(b).each(lambda part: a * part)
    a, b = _pair(a), _pair(b)
    return Pair(a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real)


def _div(a: Any, b: Any) -> Pair:
    if _is_real(b):
        return _pair(a).each(lambda part: part / b)
    b = _pair(b)
    size = b.real * b.real + b.imaginary * b.imaginary
    return _div(_mul(a, b.conjugate), size)


def _reciprocal(a: Pair) -> Pair:
    return _div(1.0, a)


def _power(a: Pair, exponent: Any) -> Pair:
    if not isinstance(exponent, (int, float)) or exponent not in (1, 2, 3):
        raise NotImplementedError(f"a step raises a complex number to the power {exponent}, which has no C form here")
    result = a
    for _ in range(int(exponent) - 1):
        result = _mul(result, a)
    return result


def _exp(a: Pair) -> Pair:
    return _polar(a.real.exp(), a.imaginary)


def _polar(size: Tensor, angle: Tensor) -> Pair:
    return Pair(size * angle.cos(), size * angle.sin())


def _log(a: Pair) -> Pair:
    return Pair(_abs(a).log(), _angle(a))


def _abs(a: Pair) -> Tensor:
    return torch.hypot(a.real, a.imaginary)


def _angle(a: Pair) -> Tensor:
    return torch.atan2(a.imaginary, a.real)


def _equal(a: Any, b: Any) -> Tensor:
    a, b = _pair(a), _pair(b)
    return (a.real == b.real) & (a.imaginary == b.imaginary)


def _where(condition: Tensor, a: Any, b: Any) -> Pair:
    a, b = _pair(a), _pair(b)
    return Pair(torch.where(condition, a.real, b.real), torch.where(condition, a.imaginary, b.imaginary))


def _product(a: Any, b: Any) -> Pair:
    """Of matrices."""
    if _is_real(b):
        return a.each(lambda part: part @ b)
    if _is_real(a):
        return b.each(lambda part: a @ part)
    return Pair(a.real @ b.real - a.imaginary @ b.imaginary, a.real @ b.imaginary + a.imaginary @ b.real)


# ------------------------------------------------------------------------------------------------- what makes them


def _view_as_real(a: Pair) -> Tensor:
    return torch.stack((a.real, a.imaginary), -1)


def _view_as_complex(x: Tensor) -> Pair:
    return Pair(*x.unbind(-1))


def _full(size: Sequence[int], value: complex, **kwargs: Any) -> Pair:
    real, options = complex(value), _real_options(kwargs)
    return Pair(torch.full(size, real.real, **options), torch.full(size, real.imag, **options))


def _zeros(like: Any, *args: Any, **kwargs: Any) -> Pair:
    return _pair(torch.zeros_like(like.real if isinstance(like, Pair) else like))


def _scalar(value: complex, **kwargs: Any) -> Pair:
    return _full((), value, **kwargs)


def _convert(a: Any, **kwargs: Any) -> Any:
    dtype = kwargs.get("dtype")
    wanted = _REALS.get(dtype, dtype)  # type: ignore[arg-type]
    if dtype is not None and not dtype.is_complex:
        return a.real.to(wanted)
    return _pair(a).each(lambda part: part if wanted is None else part.to(wanted))


_RULES: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "reciprocal": _reciprocal,
    "pow": _power,
    "square": lambda a: _mul(a, a),
    "exp": _exp,
    "log": _log,
    "abs": _abs,
    "angle": _angle,
    "eq": _equal,
    "ne": lambda a, b: ~_equal(a, b),
    "where": _where,
    "polar": _polar,
    "complex": Pair,
    **dict.fromkeys(("_conj", "_conj_physical", "conj_physical"), lambda a: _pair(a).conjugate),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda a: a),
    "real": lambda a: a.real,
    "imag": lambda a: a.imaginary,
    "view_as_real": _view_as_real,
    "view_as_complex": _view_as_complex,
    "full": _full,
    "full_like": lambda like, value, **kwargs: _full(tuple(like.real.shape), value, dtype=like.real.dtype),
    "zeros": lambda size, **kwargs: _full(size, 0.0, **kwargs),
    "zeros_like": _zeros,
    "scalar_tensor": _scalar,
    "_to": _convert,
    **dict.fromkeys(("mm", "bmm"), _product),
    "_fft_r2c": from_real,
    "_fft_c2r": to_real,
    "_fft_c2c": from_complex,
}
