"""The ranks that torchrun started, and a batch cut between them."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from .layout import Layout, even_ranges
from .meeting import met, store_of_torchrun
from .together import set_timeout

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def start(timeout: float = 1800.0) -> DeviceMesh:
    """The mesh of all ranks: under torchrun those that it started, and otherwise this process alone.

    gloo on CPUs, NCCL with one GPU a rank.

    Args:
        timeout: seconds that a rank waits for another before it raises an error that says for what.
    """
    from torch.distributed.device_mesh import init_device_mesh

    set_timeout(timeout)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not dist.is_initialized():
        # The group's own timeout comes after ours, which says what was waited for.
        backend, patience = ("nccl" if device == "cuda" else "gloo"), timedelta(seconds=1.5 * timeout + 5.0)
        store, rank, size = store_of_torchrun(timeout) if "RANK" in os.environ else (dist.HashStore(), 0, 1)
        store = met(store, rank, size, timeout)
        dist.init_process_group(backend, timeout=patience, store=store, rank=rank, world_size=size)
    return init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("particles",))


def shard(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """A tensor that all ranks have as a DTensor of which each holds its own rows. Nothing is sent.

    Args:
        x: (rows, ...), the same on every rank.
        mesh: of one dimension, as ``start`` gives it.
    """
    ranges, rank = even_ranges(len(x), mesh.size()), mesh.get_local_rank()
    own = ranges[rank]
    return Layout(mesh, 0, ranges, rank).sharded(x[own.start : own.stop].clone())


def shard_rows(local: Tensor, rows: int, mesh: DeviceMesh) -> Tensor:
    """A DTensor of which each rank gives its own rows: those of ``chunk(rows, mesh)``.

    Args:
        local: this rank's rows, (own rows, ...).
        rows: how many there are over all ranks.
        mesh: of one dimension, as ``start`` gives it.
    """
    ranges, rank = even_ranges(rows, mesh.size()), mesh.get_local_rank()
    if len(local) != len(ranges[rank]):
        raise ValueError(f"rank {rank} of {mesh.size()} has {len(ranges[rank])} of {rows} rows; got {len(local)}")
    return Layout(mesh, 0, ranges, rank).sharded(local)


def chunk(rows: int, mesh: DeviceMesh) -> range:
    """This rank's rows of a DTensor, which cuts them as torch.chunk does.

    Args:
        rows: how many there are over all ranks.
        mesh: of one dimension, as ``start`` gives it.
    """
    return even_ranges(rows, mesh.size())[mesh.get_local_rank()]
