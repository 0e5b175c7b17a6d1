"""One step of a scheme on an SDE as a graph of tensor operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from ..brownian import Increment, Needs
from ..integrators import Integrator
from ..sde import BaseSDE

INPUTS = ("x", "W", "H", "t")

_DECOMPOSED = (
    *("gelu", "gelu_backward", "leaky_relu", "leaky_relu_backward", "elu", "elu_backward", "hardtanh", "mish"),
    *("hardtanh_backward", "native_layer_norm_backward", "_softmax", "_log_softmax", "glu"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "linalg_vector_norm"),
    *("logsumexp", "addcmul", "addcdiv", "lerp", "frac", "softplus", "softplus_backward", "log_sigmoid_forward"),
    *("log_sigmoid_backward", "xlogy", "logaddexp", "mv", "dot", "addmv", "baddbmm", "square", "norm", "celu"),
    *("threshold", "threshold_backward", "silu", "silu_backward", "tanh_backward", "sigmoid_backward"),
)


class CannotCompile(Exception):
    """This step can't be compiled; the message says why, in words for the user."""


@dataclass(frozen=True)
class TracedStep:
    """A step over ``particles`` particles, gradients taken: the graph's inputs are INPUTS, its output the new state."""

    graph: fx.Graph
    module: fx.GraphModule
    particles: int


def trace_step(
    sde: BaseSDE, scheme: Integrator, step_size: float, dim: int, brownian: int, dtype: torch.dtype, particles: int
) -> TracedStep:
    """Trace the step on tensors without data. The number of particles marks their dimension: take one that is rare."""
    from torch.fx.experimental.proxy_tensor import make_fx

    needs_area = scheme.required(sde) is Needs.SPACE_TIME_AREA

    def step(x: Tensor, W: Tensor, H: Tensor, t: Tensor) -> Tensor:
        with torch.no_grad():
            return scheme.step(sde, t, x, Increment(step_size, W, H if needs_area else None))

    decompositions = _decompositions()

    def as_graph(function: Callable[..., Tensor]) -> fx.GraphModule:
        shapes = ((particles, dim), (particles, brownian), (particles, brownian), ())
        examples = [torch.empty(shape, dtype=dtype) for shape in shapes]
        return make_fx(function, decomposition_table=decompositions, tracing_mode="fake", _allow_non_fake_inputs=True)(
            *examples
        )

    try:
        with _no_validation():
            # Twice: gradients are taken first, then writes in place become values.
            module = as_graph(torch.func.functionalize(as_graph(step), remove="mutations_and_views"))
    except Exception as error:  # the user's function meets tensors without data: anything can come out of it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CannotCompile(f"tracing a step failed: {reason}") from error
    return TracedStep(module.graph, module, particles)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's own ways to write operations by simpler ones, down to those that have a C form."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    aten = torch.ops.aten
    table = {**core_aten_decompositions(), **get_decompositions([getattr(aten, name) for name in _DECOMPOSED])}
    # As a concatenation a stack would merge the particles with the dimension stacked.
    table.pop(aten.stack.default, None)
    # torch's own go by way of operations that this compiler does not know.
    table[aten.var.correction] = _variance
    table[aten.native_layer_norm.default] = _layer_norm
    return table


def _variance(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    dims = list(range(x.ndim)) if not dim else [dim] if isinstance(dim, int) else dim
    entries = math.prod(x.shape[d] for d in dims)
    squares = (x - x.mean(dims, keepdim=True)).square().sum(dims, keepdim=keepdim)
    return squares / max(0.0, entries - (1.0 if correction is None else correction))


def _layer_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.ndim - len(normalized_shape), x.ndim))
    mean = x.mean(dims, keepdim=True)
    inverse_deviation = torch.rsqrt((x - mean).square().mean(dims, keepdim=True) + eps)
    out = (x - mean) * inverse_deviation
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias), mean, inverse_deviation


@contextmanager
def _no_validation() -> Iterator[None]:
    """Distributions don't look at the values they are given, as there are none."""
    distribution: Any = torch.distributions.Distribution
    defaults = distribution._validate_args, distribution._validate_sample
    distribution._validate_args, distribution._validate_sample = False, lambda self, value: None
    try:
        yield
    finally:
        distribution._validate_args, distribution._validate_sample = defaults
