"""One step of a scheme on an SDE as a graph of tensor operations."""

from __future__ import annotations

import gc
import inspect
import logging
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from .calls import by_identity
from .complexes import InReals, has_complex
from .decomposed import OWN
from .recorder import ReadsValues, constants_of, is_recorded, looks_at_values, picks_by_number
from .rewritten import rewritten

_DECOMPOSED = (
    *("gelu", "gelu_backward", "leaky_relu", "leaky_relu_backward", "elu", "elu_backward", "hardtanh", "mish"),
    *("hardtanh_backward", "native_layer_norm_backward", "_softmax", "_log_softmax", "glu"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "linalg_vector_norm"),
    *("logsumexp", "addcmul", "addcdiv", "lerp", "frac", "softplus", "softplus_backward", "log_sigmoid_forward"),
    *("log_sigmoid_backward", "xlogy", "logaddexp", "mv", "dot", "addmv", "baddbmm", "square", "norm", "celu"),
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "mse_loss"),
    *("threshold", "threshold_backward", "silu", "silu_backward", "tanh_backward", "sigmoid_backward"),
)


class CannotCompile(Exception):
    """This step can't be compiled; the message says why, in words for the user."""


class CannotTrace(CannotCompile):
    """There is no graph of this step."""


class StepFails(CannotCompile):
    """The step itself raises an error, with the values that its tensors have."""


@dataclass(frozen=True)
class TracedStep:
    """A step over ``particles`` particles, gradients taken: from state, noise inputs and time to the new state.

    Attributes:
        module: its first ``inputs`` placeholders are those; the others stand for tensors that are there before a run.
        constants: these tensors. The first ``places`` of them stand for whole numbers that are others in every step.
        reads: tensors whose values the step has made Python numbers of, each with a copy of what they were: they are
            part of the program.
    """

    module: fx.GraphModule
    particles: int
    inputs: int
    constants: tuple[Tensor, ...]
    reads: tuple[tuple[Tensor, Tensor], ...] = ()
    places: int = 0


def trace_step(
    step: Callable[..., Any],
    normals: Sequence[int],
    width: int,
    dtype: torch.dtype,
    particles: int,
    places: Sequence[Tensor] = (),
    device: torch.device | str = "cpu",
) -> TracedStep:
    """Trace step(state, *normals, t, *places) on tensors without data, with so many normals a particle in each.

    It gives a state, or a tuple with one first. The number of particles marks their dimension: take one that is rare.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    watch = Watch(_MOST_OPERATIONS)

    table = decompositions()

    shapes = ((particles, width), *((particles, components) for components in normals), ())
    examples = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]

    def as_graph(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
        traced = make_fx(function, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)
        return traced(*inputs)

    try:
        with tracing():
            # Twice: gradients are taken first, then writes in place become values. What the step reads is an input
            # of the second, so that writes to tensors made from it become values too.
            first = as_graph(watch.on(step, particles, _Looks(watch.read)), *examples, *places)
            check_repeatable(first)
            constants = [*places, *_lift_constants(first)]
            written_out = torch.func.functionalize(first, remove="mutations_and_views")
            with torch.no_grad():
                module = as_graph(written_out, *examples, *constants)
                if has_complex(module.graph):
                    in_reals = torch.func.functionalize(InReals(module, particles).run, remove="mutations_and_views")
                    module = as_graph(in_reals, *examples, *constants)
                    constants += _lift_constants(module)
    except CannotCompile:
        raise
    except Exception as error:  # the user's function meets tensors without data: anything can come out of it
        raise CannotTrace(f"tracing a step failed: {reason_of(error)}") from error
    if any(writes(node) for node in module.graph.nodes):
        raise CannotCompile("a step writes to a tensor that it did not make")
    if any(map(_has_symbols, module.graph.nodes)):
        raise CannotTrace(f"tracing a step failed: {VALUES_DECIDE}")
    return TracedStep(module, particles, len(examples), tuple(constants), tuple(watch.reads), len(places))


def check_repeatable(module: fx.GraphModule) -> None:
    for target in dict.fromkeys(node.target for node in module.graph.nodes):
        if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
            raise CannotCompile(f"a step draws random numbers of its own, by {target}")
    read = [operator.attrgetter(str(node.target))(module) for node in module.graph.nodes if node.op == "get_attr"]
    if not all(isinstance(value, Tensor) for value in read):
        raise CannotCompile("a step reads what is neither a tensor nor a number")


def _lift_constants(module: fx.GraphModule) -> list[Tensor]:
    """Make the tensors that a graph holds its last inputs, and return them."""
    graph, lifted = module.graph, dict[str, fx.Node]()
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        name = str(node.target)
        if name not in lifted:
            with graph.inserting_after([*inputs, *lifted.values()][-1]):
                lifted[name] = graph.placeholder(f"constant_{len(lifted)}")
        node.replace_all_uses_with(lifted[name])
        graph.erase_node(node)
    module.recompile()
    return [operator.attrgetter(name)(module) for name in lifted]


def writes(node: fx.Node) -> bool:
    return node.op == "call_function" and _is_mutable(node.target)


@by_identity
def _is_mutable(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def drop_unread(graph: fx.Graph) -> None:
    """Drop operations whose results nobody reads; one without results is there for the error that it may raise."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not writes(node) and not _gives_nothing(node):
            graph.erase_node(node)


def _gives_nothing(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns


# torch.fx puts its own methods in the place of nn.Module's while it traces: two at a time would leave one there.
_TRACING = threading.RLock()

# A loop over a long series makes so many that compiling what comes out would not end.
_MOST_OPERATIONS = 20_000


def plainly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation that a dispatch mode has taken over.

    torch stands zeros that nobody has written yet in for the gradients of unused branches, and an operation on one of
    those that a mode hands on ends the process. So they are made as ordinary zeros.
    """
    made = function(*args, **kwargs)
    return made.clone() if isinstance(made, Tensor) and made._is_zerotensor() else made


class OperationCounter(TorchDispatchMode):
    """Counts the operations that are made within, and the numbers that they write."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.numbers = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported for nothing, and asked at every operation

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        made = plainly(function, *args, **(kwargs or {}))
        if not _is_view(function):  # which writes none
            parts = (made,) if isinstance(made, Tensor) else tree_leaves(made)
            self.numbers += sum(part.numel() for part in parts if isinstance(part, Tensor))
        return made


@by_identity
def _is_view(function: Any) -> bool:
    """Whether an operation gives what it was given."""
    return any(declared.alias_info for declared in function._schema.returns)


@contextmanager
def collected_later() -> Iterator[None]:
    """Within: Python looks for no garbage. Of what a trace notes, none is, and to look through it all takes as long as
    to note it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def tracing() -> Iterator[None]:
    """Within: no other thread traces, and torch says nothing about it."""
    with _TRACING, _quietly():
        yield


@contextmanager
def _quietly() -> Iterator[None]:
    """Within: what torch's tracing logs in this thread is not shown. It ends up in the reason that is given."""
    thread = threading.get_ident()

    def is_not_ours(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental")]
    for logger in loggers:
        logger.addFilter(is_not_ours)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_not_ours)


VALUES_DECIDE = "what it does depends on values of tensors, by an if, a loop, a mask or a number read out of them"
_BY_VALUE = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException")


def reason_of(error: Exception) -> str:
    """What went wrong, in one line."""
    if type(error).__name__ in _BY_VALUE:
        return VALUES_DECIDE
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_READS_VALUES = {
    *("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "__complex__"),
    *("__format__", "__repr__", "__contains__", "equal", "allclose", "is_nonzero", "_is_all_true", "__dlpack__"),
}


def _in_lists(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What is given within a list or tuple."""
    return [data for data in (*args, *kwargs.values()) if isinstance(data, (list, tuple))]


def _in_lists_of_index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What an index has within lists."""
    index = args[1]
    return [part for part in (index if isinstance(index, tuple) else (index,)) if isinstance(part, list)]


# What torch reads the values of where no mode sees it.
_READS_PARTS: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Any]] = {
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "new_tensor"), _in_lists),
    **dict.fromkeys(("__getitem__", "__setitem__"), _in_lists_of_index),
    "tensor_split": lambda args, kwargs: (args[1:], kwargs),
}
_DISTRIBUTIONS = str(Path(torch.distributions.__file__).parent)


class Watch(TorchFunctionMode):
    """What a trace can't record of a step, noted while it runs.

    A tensor with data may be read as a Python number, which the graph then holds: see TracedStep. And distributions
    look at what they are given, where a trace has no values to look at: their conditions are taken as met, and the
    step itself checks them, see ``_invalidated``.
    """

    def __init__(self, most_operations: int) -> None:
        super().__init__()
        self.reads: list[tuple[Tensor, Tensor]] = []
        self._conditions: list[Tensor] = []
        self._hold: dict[int, Tensor] = {}  # conditions taken together, by how many dimensions they have
        self._particles = 0
        self._read: set[int] = set()
        self._operations, self._most_operations = 0, most_operations

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operations += 1
        if self._operations > self._most_operations:
            raise CannotCompile(f"a step makes more than {self._most_operations} operations")
        name = getattr(function, "__name__", "")
        if is_condition(name, args, kwargs):
            self._note_condition(args[0])
            return True
        if name in ("full_like", "new_full") and (filled := _filled(args, kwargs or {})) is not None:
            return filled
        made = rewritten(name, args, kwargs or {}, self.read)
        if made is not NotImplemented:
            return made
        if name in _READS_VALUES:
            self._read_all((args, kwargs))
        elif name in _READS_PARTS:
            self._read_all(_READS_PARTS[name](args, kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _read_all(self, values: Any) -> None:
        for value in tree_leaves(values):
            if isinstance(value, Tensor) and not self.read(value) and is_recorded(value):
                raise ReadsValues

    def read(self, value: Tensor) -> bool:
        """Note that a tensor's values are read; False if it has none, or if the step has made them of others than
        constants."""
        constants = [value] if _has_data(value) else constants_of(value) if is_recorded(value) else None
        for constant in constants or ():
            if id(constant) not in self._read:
                with _disable_current_modes():  # a copy with data, that is not part of the step
                    self.reads.append((constant, constant.detach().clone()))
                self._read.add(id(constant))  # as long as it is kept, no other one has this
        return constants is not None

    def on(
        self, step: Callable[..., Any], particles: int, looks: AbstractContextManager[Any] | None = None
    ) -> Callable[..., Any]:
        """The step of so many particles, watched: a function of a state, normals, the time and places."""

        self._particles = particles

        def watched(state: Tensor, *arguments: Tensor) -> Any:
            with torch.no_grad(), self, looks or nullcontext():
                moved = step(state, *arguments)
            if isinstance(moved, tuple):
                return self._invalidated(moved[0]), *moved[1:]
            return self._invalidated(moved)

        return watched

    def _note_condition(self, condition: Tensor) -> None:
        """Take a distribution's condition together with those before: at once, so that in a loop every round does, and
        none is kept for all rounds."""
        if torch._C._functorch.peek_interpreter_stack() is None:
            return self._take_together(condition)
        while torch._C._functorch.is_functorch_wrapped_tensor(condition):  # within vmap: that of all particles
            condition = torch._C._functorch.get_unwrapped(condition)
        self._conditions.append(condition)  # what is made of it here would end with the transformation

    def _take_together(self, condition: Tensor) -> None:
        others = [d for d, size in enumerate(condition.shape) if size != self._particles]
        holds = condition.all(others) if others else condition
        before = self._hold.get(holds.ndim)
        self._hold[holds.ndim] = holds if before is None else before & holds

    def _invalidated(self, moved: Tensor) -> Tensor:
        """The new states, NaN where a distribution would have raised an error: the run then ends with one."""
        for condition in self._conditions:
            self._take_together(condition)
        for holds in self._hold.values():
            moved = torch.where(holds.unsqueeze(-1) if holds.ndim else holds, moved, math.nan)
        return moved


class _Looks(TorchDispatchMode):
    """Tells of the tensors with data that operations look at, as an argument that is to be a number makes them do."""

    def __init__(self, read: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self._read = read

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported for nothing, and asked at every operation

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if looks_at_values(function) and not picks_by_number(function, args):
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, Tensor):
                    self._read(leaf)
        return function(*args, **(kwargs or {}))


def _has_symbols(node: fx.Node) -> bool:
    """Whether a node gives a number or a size that is not known before it is run."""
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
    leaves = tree_leaves(node.meta.get("val"))
    sizes = (size for leaf in leaves if isinstance(leaf, Tensor) for size in leaf.shape)
    return any(isinstance(part, symbols) for part in (*leaves, *sizes))


def _filled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """x.new_full or full_like with a number that is a tensor here, such as the time; None if it is a number."""
    x, *sizes = args
    value = kwargs["fill_value"] if "fill_value" in kwargs else sizes.pop()
    if not isinstance(value, Tensor) or _has_data(value) or set(kwargs) - {"fill_value"}:
        return None
    return value.to(x.dtype).expand(sizes[0] if sizes else x.shape).clone()


def is_condition(name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """Whether a function that a mode has been given asks if a distribution's condition is met."""
    if name not in ("all", "_is_all_true") or len(args) != 1 or kwargs:
        return False
    return sys._getframe(2).f_code.co_filename.startswith(_DISTRIBUTIONS)  # who has called what the mode stands before


def _has_data(value: Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    if is_recorded(value):
        return False
    return not isinstance(value, FakeTensor) and not torch._C._functorch.is_functorch_wrapped_tensor(value)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's own ways to write operations by simpler ones, down to those that have a C form."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    aten = torch.ops.aten
    table = {**core_aten_decompositions(), **get_decompositions([getattr(aten, name) for name in _DECOMPOSED])}
    for operation in [operation for operation in table if not operation._overloadname.endswith("out")]:
        table[operation] = _without_its_wrappers(table[operation])
    # As a concatenation a stack would merge the particles with the dimension stacked.
    table.pop(aten.stack.default, None)
    # torch's own go by way of operations that this compiler does not know.
    table[aten.var.correction] = _variance
    table[aten.var_mean.correction] = lambda x, *args, **options: (
        _variance(x, *args, **options),
        x.mean(*args, keepdim=options.get("keepdim", False)),
    )
    table[aten.native_layer_norm.default] = _layer_norm
    table[aten.repeat.default] = _repeated
    table[aten.cholesky_solve.default] = _cholesky_solve
    table[aten.median.dim] = _median
    table[aten.addmm.default] = _addmm
    table[aten.polygamma.default] = _polygamma
    table[aten.round.decimals] = _round
    table[aten.ldexp.Tensor] = _ldexp
    return {**table, **OWN}


def _without_its_wrappers(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """One of torch's own, without the wrappers that promote dtypes where there is nothing to promote: these import
    torch's compiler and sympy, two seconds, to ask the one to leave them alone and the other for shapes."""
    plain = inspect.unwrap(decomposition)
    if plain is decomposition:
        return decomposition

    def plain_if_alike(*args: Any, **kwargs: Any) -> Any:
        dtypes = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        is_plain = len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64}
        return (plain if is_plain else decomposition)(*args, **kwargs)

    return plain_if_alike


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


def _repeated(x: Tensor, repeats: list[int]) -> Tensor:
    """Copies along a dimension before each of its own, and the two made one."""
    sizes = [*[1] * (len(repeats) - x.ndim), *x.shape]
    pairs = list(zip(repeats, sizes, strict=True))
    apart = x.reshape([part for size in sizes for part in (1, size)])
    return apart.expand([part for pair in pairs for part in pair]).reshape([copies * size for copies, size in pairs])


def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    inner = torch.linalg.solve_triangular(lower, right, upper=False)
    return torch.linalg.solve_triangular(lower.mT, inner, upper=True)


def _median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two in the middle, and NaN if there is one."""
    middle, place = x.kthvalue((x.shape[dim] + 1) // 2, dim, keepdim)
    return torch.where(x.isnan().any(dim, keepdim), math.nan, middle), place


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if (beta, alpha) == (1, 1):
        return NotImplemented
    return beta * bias + alpha * (a @ b)


def _polygamma(order: int, x: Tensor) -> Tensor:
    return torch.digamma(x) if order == 0 else NotImplemented


def _round(x: Tensor, *, decimals: int) -> Tensor:
    """As torch scales it: by a power of ten, or by one over it."""
    power = 10.0 ** abs(decimals)
    return (x * power).round() / power if decimals > 0 else (x / power).round() * power if decimals else x.round()


def _ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    return x * torch.pow(2.0, exponent)
