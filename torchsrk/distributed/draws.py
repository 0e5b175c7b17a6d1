"""Draws of a distribution or of a plan, spread over ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from ..sampling import Run, sample
from .layout import Layout, even_ranges, local_of
from .starting import shard

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from ..tuning import Tuning


def mapped(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x) of particles that are each treated by themselves, every rank those that it has."""
    layout = Layout.of(x)
    return layout.sharded(function(local_of(x)))


def made_in_shards(rows: int, mesh: DeviceMesh, make: Callable[[range], Tensor]) -> Tensor:
    """A tensor of so many rows, every rank's made by itself from their numbers."""
    layout = Layout(mesh, 0, even_ranges(rows, mesh.size()), mesh.get_local_rank())
    return layout.sharded(make(layout.own))


def sample_tuned(
    plan: Tuning,
    mesh: DeviceMesh,
    draws: int = 1,
    *,
    after: Run | None = None,
    compile: bool | Literal["auto"] = False,
    progress: bool = False,
) -> Run:
    """``plan.sample`` with the particles spread over the ranks of a mesh: a Run of DTensors, to the same bits.

    All ranks have the same plan: tuned with the same seed, or loaded. Draws go on from those of a Run ``after`` which
    they come, which this made.

    Args:
        plan: what ``tune`` gave.
        mesh: of one dimension, as ``start`` gives it.
        draws: how many of every particle.
        compile, progress: as for ``sample``.
    """
    if after is not None:
        plan.check_own(after)
    state, step = (shard(plan.state, mesh), plan.step) if after is None else (after.state, after.step)
    dim = plan.potential.loc.shape[-1]
    run = sample(
        plan.sde,
        mapped(lambda rows: rows[..., :dim].contiguous(), state),
        state=state,
        integrator=plan.integrator,
        step_size=plan.step_size,
        num_steps=draws * plan.length,
        thin=plan.length,
        seed=plan.seed,
        first_step=step,
        compile=compile,
        progress=progress,
    )
    assert run.trajectory is not None
    out = plan.potential.outward
    final, trajectory = mapped(out, run.final), mapped(out, run.trajectory)
    return replace(run, final=final, trajectory=trajectory, constrain=plan.constrain, plan=plan.mark)
