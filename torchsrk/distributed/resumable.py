"""A long run of sharded particles that may be killed at any moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checkpoints import CheckpointError
from ..dtensors import is_sharded
from ..integrators import Integrator, integrator_named
from ..sampling import Run, sample
from ..sde import BaseSDE
from .checkpoint import has_checkpoint, load_sharded, save_sharded
from .layout import Layout, local_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_FIRST_STEPS = 16  # from which the time of a step is known


def sample_resumable(
    sde: BaseSDE,
    x0: Tensor,
    *,
    folder: Path | str,
    integrator: Integrator | str,
    step_size: float,
    num_steps: int,
    seed: int,
    every: float = 10.0,
    **options: Any,
) -> Run:
    """``sample`` of a sharded x0, with a checkpoint every so often; the same call goes on from the last one.

    The states are those of a run without a stop, and may be gone on with on another number of ranks: under
    ``torchrun --max-restarts`` the script calls this, and a rank that dies costs the steps since the last checkpoint.
    The last positions alone are kept: call it for every draw that is to be kept, with more steps.

    Args:
        sde, integrator, step_size, num_steps, seed: as for ``sample``.
        x0: as for ``sample``, a DTensor sharded by its rows.
        folder: of the checkpoint; all ranks see it. It belongs to this run, and another one is refused.
        every: seconds between checkpoints.
        options: others of ``sample``; not ``state``, ``first_step``, ``burn_in`` and ``thin``.
    """
    layout, scheme = Layout.of(x0, "x0"), integrator_named(integrator)
    if layout.mesh is None or not is_sharded(x0):
        raise TypeError("x0 is a DTensor, as torchsrk.distributed.shard makes one of a batch")
    if refused := sorted({"state", "first_step", "burn_in", "thin", "callbacks"} & set(options)):
        raise ValueError(f"a run that is resumed takes no {', '.join(refused)}: it keeps its last positions alone")
    asked = {"integrator": repr(scheme), "step_size": float(step_size), "seed": seed, "shape": list(x0.shape)}
    asked |= {"dtype": str(x0.dtype), "first_particle": options.get("first_particle", 0)}
    run = _last(folder, layout.mesh, asked)
    options |= {"integrator": scheme, "step_size": step_size, "seed": seed}
    steps, saved = _FIRST_STEPS, time.monotonic()
    while run is None or run.step < num_steps:
        start, done = time.monotonic(), 0 if run is None else run.step
        count = min(steps, num_steps - done)
        if run is None:
            run = sample(sde, x0, num_steps=count, **options)
        else:
            run = sample(sde, run.final, state=run.state, first_step=done, num_steps=count, **options)
        now = time.monotonic()
        rate, left = (now - start) / count, every - (now - saved)
        due, steps, then = _agreed(layout, [left <= rate, left / rate, every / rate])
        if due or run.step >= num_steps:
            kept = {"final": run.final} if run.final is run.state else {"final": run.final, "state": run.state}
            save_sharded(folder, {**kept, "step": run.step, "asked": asked})
            steps, saved = then, time.monotonic()
    return Run(run.final, None, run.state, run.step, _tallies(scheme, run.state, layout, num_steps))


def _last(folder: Path | str, mesh: DeviceMesh, asked: dict[str, Any]) -> Run | None:
    """The run as far as its last checkpoint."""
    if not has_checkpoint(folder):
        return None
    kept = load_sharded(folder, mesh)
    if kept.get("asked") != asked or not isinstance(kept.get("step"), int) or "final" not in kept:
        raise CheckpointError(
            f"{folder} holds another run, {kept.get('asked')}, and this is {asked}: give another folder, or remove it"
        )
    return Run(kept["final"], None, kept.get("state", kept["final"]), kept["step"])


def _agreed(layout: Layout, numbers: list[float]) -> tuple[int, int, int]:
    """Whether a checkpoint is due, how many steps are left until one, and how many lie between two: by the clock of the
    first rank."""
    with layout.together("a long run") as ranks:
        due, left, between = ranks.gathered(torch.tensor(numbers), "the time of the first rank")[0].tolist()
    return int(due), max(1, int(left)), max(1, int(between))


def _tallies(scheme: Integrator, state: Tensor, layout: Layout, num_steps: int) -> dict[str, float]:
    """What the scheme has counted for a particle and step: counts are whole numbers, with exact sums."""
    found = {}
    with layout.together("a long run") as ranks:
        for name, count in scheme.tallies(local_of(state)).items():
            sums = ranks.gathered(count.double().sum(), "what the scheme has counted")
            found[name] = float(torch.stack(sums).sum()) / state.shape[:-1].numel() / num_steps
    return found
