"""Real processes on this machine that meet at a file, and what each of them found."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

REPOSITORY = Path(__file__).parents[2]
Case = Callable[[Any], None]
Result = TypeVar("Result")


def run_crew(module: str, size: int, folder: Path, timeout: float) -> list[dict[str, str]]:
    """What the cases of a module ended with on each of so many ranks: "passed", or a traceback."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-m", module, str(size), str(folder)]
    crew = subprocess.Popen(command, env=environment, cwd=REPOSITORY, start_new_session=True)
    try:
        crew.wait(timeout)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(crew.pid, signal.SIGKILL)  # with its ranks
        crew.wait()
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(size)]


class Crew:
    """One of the ranks, and meshes of the first few of them."""

    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self.rank, self.size, self.folder = rank, size, folder
        groups = [dist.new_group(list(range(count))) for count in range(1, size + 1)]
        mine = {count: group for count, group in enumerate(groups, start=1) if rank < count}
        self.meshes = {count: DeviceMesh.from_group(group, "cpu") for count, group in mine.items()}

    def in_turn(self, work: Callable[[], Result]) -> Result:
        """What every rank finds for itself: the first before the others, for whom it has then compiled."""
        found = [work()] if self.rank == 0 else []
        dist.barrier()
        return found[0] if found else work()

    def new_mesh(self) -> DeviceMesh:
        """Of all ranks, for work that fails: its group is lost with it."""
        return DeviceMesh.from_group(dist.new_group(list(range(self.size))), "cpu")


def main(cases: list[Case], rank: int, size: int, folder: Path) -> None:
    """Run all cases on this rank; one that fails does not end those after it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    crew, found = Crew(rank, size, folder), {}
    for case in cases:
        start = time.monotonic()
        try:
            case(crew)
            found[case.__name__] = "passed"
        except BaseException:
            found[case.__name__] = traceback.format_exc()
        print(f"{case.__name__}: {time.monotonic() - start:.1f} s on rank {rank}")
        dist.barrier()
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    os._exit(0)  # work that was waited for in vain may be pending


def main_of(cases: list[Case]) -> None:
    """Every rank is a fork of this process, which has imported what they need, and runs nothing itself."""
    # What loads the most, and late.
    late = ("torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.tensor")
    for name in (*late, "safetensors.torch", "torchsrk.compiled.programs"):
        importlib.import_module(name)

    size, folder = int(sys.argv[1]), Path(sys.argv[2])
    ranks: list[int] = []
    for rank in range(size):
        ranks.append(os.fork())
        if not ranks[-1]:
            main(cases, rank, size, folder)
    for pid in ranks:
        os.waitpid(pid, 0)
