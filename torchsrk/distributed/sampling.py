"""``sample`` of a sharded batch: every rank runs its own rows, with the numbers of its particles in the batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..blocks import default_block_size, one_torch_thread
from ..compiled import CapturedSteps, compiling_pays
from ..dtensors import is_sharded
from ..integrators import integrator_named
from ..potentials.base import is_stateful
from ..sampling import Company, NonFiniteStateError, Run, sample_alone
from ..sampling.signs import Watch
from ..sde import BaseSDE
from .exchange import fetched
from .layout import Layout, at_least, local_of, whole_blocks
from .together import Ranks, check_same

if TYPE_CHECKING:
    from ..compiled.steps import Bound

# Compiled steps of fewer particles are made one by one, and round differently.
_LEAST_COMPILED = 5


def sample_sharded(
    sde: BaseSDE, x0: Tensor, *, state: Tensor | None, watch: Watch | None = None, **options: Any
) -> Run:
    """``sample`` of particles that are spread over the ranks of a mesh.

    On the CPU the bits are those of one process. Eager steps round by blocks, so a rank also runs those rows of its
    neighbours that share a block with its own, and forgets them in the end; compiled ones run their own rows alone.
    """
    layout = Layout.of(x0, "x0")
    options["callbacks"] = tuple(options["callbacks"])
    _check_batch(sde, x0, state, layout)
    with layout.together("sample") as ranks:
        check_same(ranks, {"x0's shape": tuple(x0.shape), "state": state is None, **_comparable(options)})
        batch = _Batch(ranks, layout, sde, local_of(x0), None if state is None else local_of(state), watch)
        if options["compile"] == "auto" and options["step_sizes"] is not None:
            options["compile"] = False
        if options["compile"] == "auto":
            steps = options["burn_in"] + options["num_steps"]
            gradients = integrator_named(options["integrator"]).gradients_per_step * steps
            options["compile"] = compiling_pays(gradients, x0.numel())
        if options["compile"]:
            try:
                return batch.run([at_least(rows, layout.rows, _LEAST_COMPILED) for rows in layout.ranges], **options)
            except _SomeEager:
                options["compile"] = False
        size = _block_size(x0, options["block_size"])
        with one_torch_thread() if size < layout.rows else nullcontext():
            return batch.run([whole_blocks(rows, layout.rows, size) for rows in layout.ranges], **options)


def _comparable(options: Mapping[str, Any]) -> dict[str, object]:
    """Options as they look alike on all ranks."""
    apart = {name: value for name, value in options.items() if name not in ("callbacks", "levy_area", "progress")}
    return {**apart, "integrator": str(options["integrator"]), "callbacks": len(options["callbacks"])}


class _SomeEager(Exception):
    """A rank can't compile its steps."""


@dataclass(frozen=True)
class _Others(Company):
    """The other ranks, in a run of rows of which those of ``kept`` are this rank's own."""

    ranks: Ranks
    kept: slice
    total: int
    copies: Sequence[Tensor]  # of rows, made for this run alone

    def started(self) -> None:
        for copy in self.copies:
            copy.untyped_storage().resize_(0)  # others still hold the tensor, and would hold as much memory again

    def look(self) -> None:
        self.ranks.look()

    def average(self, count: Tensor) -> float:
        # Counts are whole numbers, whose sums are exact in any order.
        sums = self.ranks.gathered(count[self.kept].double().sum(), "what the scheme has counted")
        return float(torch.stack(sums).sum()) / (self.total * math.prod(count.shape[1:]))

    def agreed(self, compiled: Bound | CapturedSteps | None) -> Bound | CapturedSteps | None:
        mine = torch.tensor([compiled is not None], dtype=torch.uint8)
        found = [bool(part) for part in self.ranks.gathered(mine, "the compiled steps")]
        if not all(found):
            if compiled is not None:
                eager = found.index(False)
                message = f"compile=True: this run is eager, as rank {eager} can't compile its steps"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            raise _SomeEager
        return compiled


@dataclass(frozen=True)
class _Batch:
    """This rank's part of a batch."""

    ranks: Ranks
    layout: Layout
    sde: BaseSDE
    x0: Tensor
    state: Tensor | None
    watch: Watch | None

    def run(self, want: Sequence[range], *, first_particle: int, progress: bool, callbacks: Any, **options: Any) -> Run:
        """Rows ``want`` of every rank are run, of which it keeps its own."""
        layout, mine = self.layout, want[self.layout.rank]
        x0, state = self._fetched(self.x0, want, "rows of x0"), None
        if self.state is not None:
            state = self._fetched(self.state, want, "rows of the state")
        start = layout.own.start - mine.start if len(layout.own) else 0
        kept = slice(start, start + len(layout.own))
        try:
            run = sample_alone(
                self.sde,
                x0,
                state=state,
                first_particle=first_particle + mine.start * math.prod(x0.shape[1:-1]),
                progress=progress and layout.rank == 0,
                callbacks=[self._of_shards(callback, kept) for callback in callbacks],
                watch=self.watch,
                company=_Others(self.ranks, kept, layout.rows, self._copies(x0, state)),
                **options,
            )
        except NonFiniteStateError as error:
            error.last_finite = error.last_finite[kept]
            raise
        final, trajectory = run.final[kept], None
        if run.trajectory is not None:
            trajectory = layout.sharded(run.trajectory[:, kept], dim=1)
        # Where a scheme reports its state, that is one tensor and not two.
        sharded = layout.sharded(final)
        state = sharded if run.state is run.final else layout.sharded(run.state[kept])
        return Run(sharded, trajectory, state, run.step, run.statistics, run.time)

    def _fetched(self, local: Tensor, want: Sequence[range], what: str) -> Tensor:
        return fetched(self.ranks, local, self.layout.ranges, want, what)

    def _copies(self, *fetched: Tensor | None) -> list[Tensor]:
        """Those of the tensors that are not a part of what the user holds."""
        given = [tensor.untyped_storage().data_ptr() for tensor in (self.x0, self.state) if tensor is not None]
        return [x for x in fetched if x is not None and x.untyped_storage().data_ptr() not in given]

    def _of_shards(self, callback: Callable[[int, Tensor], None], kept: slice) -> Callable[[int, Tensor], None]:
        return lambda step, x: callback(step, self.layout.sharded(x[kept]))


def _block_size(x0: Tensor, block_size: int | None) -> int:
    """Rows that round together, of a run of the whole batch on one process."""
    if x0.device.type != "cpu" and block_size is None:
        return 1  # a GPU runs all of its rows at once, and promises no bits
    default = default_block_size(torch.empty(x0.shape, device="meta"))
    return min(x0.shape[0], default if block_size is None else block_size)


def _check_batch(sde: BaseSDE, x0: Tensor, state: Tensor | None, layout: Layout) -> None:
    if layout.dim != 0 or x0.ndim < 2:
        raise ValueError(
            f"x0 is (rows, ..., dim) and sharded by its rows, [Shard(0)]; got {tuple(x0.shape)} by its dimension "
            f"{layout.dim}"
        )
    if state is not None and (not is_sharded(state) or Layout.of(state, "state").ranges != layout.ranges):
        raise ValueError("state is that of an earlier run, sharded as x0 is: give run.state, or shard(state, mesh)")
    if is_stateful(sde):
        raise ValueError(
            "the potential changes with every gradient, as one that draws minibatches does, and all particles share "
            "its draws: run each rank's particles by themselves, with first_particle="
        )
