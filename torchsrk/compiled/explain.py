"""What becomes of a step that is compiled, for people: its graph, its C, where time goes, or why it runs eagerly."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from ..brownian import Stream, fill_normal
from .calls import operation_name
from .problem import Problem
from .trace import CannotCompile

if TYPE_CHECKING:
    from ..integrators import Integrator
    from ..sde import BaseSDE
    from .steps import Program

_SECONDS = 0.02  # that a timing takes at least
# Normals. Of fewer a good part of the time is the call's, and a compiled loop makes none.
_DRAWN_TOGETHER = 1 << 17
_ROUNDS = 3  # of timings, of which the shortest counts: what else the machine does only adds
# What an entry of a result costs, in multiply-adds, roughly: what is not named here costs one.
_COSTS = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "remainder", "fmod"), 5.0),
    **dict.fromkeys(
        ("exp", "log", "tanh", "sigmoid", "sin", "cos", "log1p", "expm1", "exp2", "log2", "erf", "erfc"), 15.0
    ),
    **dict.fromkeys(("pow", "lgamma", "digamma", "erfinv", "atan2", "tan", "asin", "acos", "atan", "polygamma"), 40.0),
}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
_FREE = {
    "view",
    "expand",
    "permute",
    "t",
    "transpose",
    "unsqueeze",
    "squeeze",
    "select",
    "slice",
    "alias",
    "detach",
    "clone",
}


@dataclass(frozen=True)
class Explanation:
    """What becomes of a step. ``print`` it.

    Attributes:
        reason: why it runs eagerly, or None.
        graph: its operations, one a line, with the shapes of their results.
        source: the C of the step.
        path: where that is kept, with all that is compiled along with it.
        any_step_size: the program serves every step size.
        seconds: that tracing and compiling took, when that was done.
        parts: (name, nanoseconds a particle and step): noise and the whole as measured on one thread, and the rest
            shared out between kinds of operations by a rough count, if it is more than timings tell apart.
    """

    reason: str | None
    graph: str = ""
    source: str = ""
    path: str = ""
    any_step_size: bool = False
    seconds: float = 0.0
    parts: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        if self.reason is not None:
            return f"This step runs eagerly, as {self.reason}."
        width = max(len(name) for name, _ in self.parts)
        parts = "\n".join(f"  {name:<{width}}  {nanoseconds:8.2f}" for name, nanoseconds in self.parts)
        sizes = "every step size" if self.any_step_size else "this step size alone"
        return (
            f"Compiled in {self.seconds:.2f} s, for {sizes}; kept in {self.path}\n\n"
            f"Nanoseconds a particle and step, on one thread:\n{parts}\n\nGraph:\n{self.graph}\n\nC:\n{self.source}"
        )


def explain(
    sde: BaseSDE, integrator: Integrator | str, x: Tensor, *, step_size: float = 0.01, **options: Any
) -> Explanation:
    """What becomes of a step when it is compiled. Nothing is run but the step itself, to time it.

    Args:
        sde: as for ``sample``.
        integrator: a scheme or its name.
        x: positions of particles (..., dim).
        step_size: of the step that is timed.
        options: ``levy_area``, if any.
    """
    from ..sampling import problem_of
    from .programs import find

    try:
        problem = problem_of(sde, x, integrator=integrator, step_size=step_size, **options)
        found = find(problem, from_disk=False)  # what is kept on disk has no graph
        steps = found.steps
        return Explanation(
            reason=None,
            graph="\n".join(_lines(steps.graph)),
            source=steps.source,
            path=steps.path,
            any_step_size=steps.any_step_size,
            seconds=steps.seconds,
            parts=tuple(_parts(problem, steps, steps.bind(problem, found.key, 0, 0, 1))),
        )
    except CannotCompile as reason:
        return Explanation(str(reason))


def _lines(graph: fx.Graph) -> Iterator[str]:
    particles = _particles(graph)
    for node in graph.nodes:
        value = node.meta.get("val")
        sizes = ("particles" if size == particles else str(size) for size in getattr(value, "shape", ()))
        shape = f"  # ({', '.join(sizes)})" if isinstance(value, Tensor) else ""
        if node.op == "call_function":
            given = ", ".join([*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())])
            yield f"  {node.name} = {operation_name(node) or node.target}({given}){shape}"
        else:
            yield f"  {node.op} {node.name}{shape}"


def _particles(graph: fx.Graph) -> int:
    """How many it was traced with."""
    return int(next(iter(graph.nodes)).meta["val"].shape[0])


def _parts(problem: Problem, steps: Program, bound: Any) -> Iterator[tuple[str, float]]:
    state = problem.state.reshape(-1, problem.width).contiguous()
    out, count = torch.empty_like(state), len(state)
    whole, noise = math.inf, math.inf
    for _ in range(_ROUNDS):  # beside one another
        whole = min(whole, _timed(lambda steps: bound.advance(state, out, 0, steps), count))
        noise = min(noise, sum(_noise_time(problem, draw.components, count) for draw in problem.noise))
    yield "whole step", whole
    yield "noise", min(noise, whole)
    if noise >= whole:
        yield "all else, too little to be told from noise", 0.0
        return
    counted = _counted(steps.graph)
    total = sum(counted.values()) or 1.0
    for name, cost in sorted(counted.items(), key=lambda item: -item[1]):
        yield f"{name} (share of a count)", (whole - noise) * cost / total


def _noise_time(problem: Problem, components: int, count: int) -> float:
    rows = count * problem.substeps * (problem.width // problem.state.shape[-1])
    together = max(1, _DRAWN_TOGETHER // (rows * components))
    out = torch.empty(together, rows, components, dtype=problem.state.dtype)

    def draw(steps: int) -> None:
        for step in range(0, steps, together):
            drawn = out[: min(together, steps - step)]
            fill_normal(drawn, seed=0, stream=Stream.INCREMENT, step=step, threads=1)

    return _timed(draw, count)


def _timed(run: Any, count: int) -> float:
    """Nanoseconds a particle and step of ``run(steps)``, as many as take long enough."""
    steps, seconds = 1, 0.0
    while seconds < _SECONDS and steps < 1 << 24:
        steps *= 2
        start = time.perf_counter()
        run(steps)
        seconds = time.perf_counter() - start
    return 1e9 * seconds / (steps * count)


def _counted(graph: fx.Graph) -> dict[str, float]:
    """Rough costs of kinds of operations, a particle."""
    from .lowering import is_small_integer  # all of the compiler, which has run by now

    counted: dict[str, float] = defaultdict(float)
    particles = _particles(graph)
    for node in graph.nodes:
        name, value = (operation_name(node) or "").partition(".")[0].removesuffix("_copy"), node.meta.get("val")
        if not name or name in _FREE or not isinstance(value, Tensor) or particles not in value.shape:
            continue
        entries = value.numel() / particles
        if name in _PRODUCTS:
            right = node.args[-1].meta["val"]
            counted["matrix products"] += entries * right.shape[-2]
        elif name in _COSTS and not (name == "pow" and is_small_integer(node.args[1])):
            counted[name] += entries * _COSTS[name]
        else:
            counted["sums, moves and arithmetic"] += entries
    return counted
