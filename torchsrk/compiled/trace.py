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

from ..brownian import Increment, LevyArea, Needs, Stream
from ..integrators import Integrator
from ..sde import BaseSDE

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
class NoiseInput:
    """Normals that a step reads: ``components`` a particle from a stream, times a scale."""

    stream: Stream
    components: int
    scale: float


@dataclass(frozen=True)
class TracedStep:
    """A step over ``particles`` particles, gradients taken: from state, noise inputs and time to the new state."""

    module: fx.GraphModule
    particles: int


def noise_inputs(
    sde: BaseSDE, scheme: Integrator, step_size: float, brownian: int, levy_area: LevyArea
) -> list[NoiseInput]:
    """What a step draws, the increment first."""
    inputs = [NoiseInput(Stream.INCREMENT, brownian, math.sqrt(step_size))]
    needs = scheme.required(sde)
    if needs is Needs.SPACE_TIME_AREA:
        inputs.append(NoiseInput(Stream.SPACE_TIME_AREA, brownian, math.sqrt(step_size / 12.0)))
    elif needs is Needs.LEVY_AREA:
        asked = _Recorder()
        levy_area.sample_piece(torch.zeros(1, brownian), step_size, asked)
        inputs += [NoiseInput(stream, components, 1.0) for stream, components in asked.components.items()]
    return inputs


class _Recorder:
    """Gives zeros for normals, and remembers how many were asked for."""

    def __init__(self) -> None:
        self.components: dict[Stream, int] = {}

    def draw(self, stream: Stream, like: Tensor, components: int, *, first_row: int = 0, first: int = 0) -> Tensor:
        self.components[stream] = max(self.components.get(stream, 0), first + components)
        return like.new_zeros(len(like), components)


class _Given:
    """Gives for normals what the graph has as inputs."""

    def __init__(self, tensors: dict[Stream, Tensor]) -> None:
        self.tensors = tensors

    def draw(self, stream: Stream, like: Tensor, components: int, *, first_row: int = 0, first: int = 0) -> Tensor:
        return self.tensors[stream][:, first : first + components].clone()


def trace_step(
    sde: BaseSDE,
    scheme: Integrator,
    step_size: float,
    dim: int,
    dtype: torch.dtype,
    noise: list[NoiseInput],
    levy_area: LevyArea,
    particles: int,
) -> TracedStep:
    """Trace the step on tensors without data. The number of particles marks their dimension: take one that is rare."""
    from torch.fx.experimental.proxy_tensor import make_fx

    needs = scheme.required(sde)

    def step(x: Tensor, *arguments: Tensor) -> Tensor:
        *drawn, t = arguments
        given = {source.stream: tensor for source, tensor in zip(noise, drawn, strict=True)}
        W, A = given[Stream.INCREMENT], None
        with torch.no_grad():
            if needs is Needs.LEVY_AREA:
                A = levy_area.sample_piece(W, step_size, _Given(given))
            return scheme.step(sde, t, x, Increment(step_size, W, given.get(Stream.SPACE_TIME_AREA), A))

    decompositions = _decompositions()

    def as_graph(function: Callable[..., Tensor]) -> fx.GraphModule:
        shapes = ((particles, dim), *((particles, source.components) for source in noise), ())
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
    return TracedStep(module, particles)


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
