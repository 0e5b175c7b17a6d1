"""Commands under torchrun, of which a rank is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from scripts.kill_ranks import killed
from torchsrk import Langevin, sample
from torchsrk.blocks import one_torch_thread
from torchsrk.cli import main
from torchsrk.potentials import GaussianMixture

from ..experiments.test_runs import contents
from .crew import REPOSITORY

CONFIG = """
experiment: asymptotic
description: a small one
compile: false
settings:
  panels: [{against: step_size, dims: [2], step_sizes: [0.5, 1.0, 1.5]}]
  particles: 500
  repeats: 2
  time: 8
quick: {}
"""


def ranks_of(torchrun: subprocess.Popen[bytes]) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(torchrun.pid)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def test_a_run_whose_rank_is_killed_ends_by_itself(tmp_path: Path) -> None:
    """One folder of one run, with the bytes of one process; what was measured before the kill is not measured again."""
    config, alone, shared = tmp_path / "small.yaml", tmp_path / "alone", tmp_path / "shared"
    config.write_text(CONFIG, encoding="utf-8")
    torch.set_default_dtype(torch.float32)
    with one_torch_thread():  # as torchrun gives a rank: transport rounds by the number of threads
        assert main(["run", str(config), "--output", str(alone)]) == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "2", "-m", "torchsrk", "run", str(config), "--output", str(shared)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    torchrun = subprocess.Popen(command, env=environment, cwd=REPOSITORY)
    try:
        while not (before := list(shared.glob("units/*.safetensors"))) and torchrun.poll() is None:
            time.sleep(0.01)
        os.kill(ranks_of(torchrun)[1], signal.SIGKILL)
        written = {file: file.stat().st_mtime_ns for file in before}
        assert torchrun.wait(timeout=240.0) == 0
    finally:
        if torchrun.poll() is None:
            torchrun.terminate()
            torchrun.wait()
    assert contents(shared) == contents(alone)
    assert {file: file.stat().st_mtime_ns for file in before} == written


def test_particles_whose_rank_is_killed_go_on_from_their_checkpoint(tmp_path: Path) -> None:
    import hashlib

    torch.set_default_dtype(torch.float32)  # as the job has it
    ended = killed(tmp_path / "job", restarts=2, steps=1500, after=5.0, rank=1)
    sde = Langevin(GaussianMixture(shift=torch.full((20,), 0.1581, dtype=torch.float32)))
    options = {"integrator": "srk-ld", "step_size": 0.1, "num_steps": 1500, "seed": 0, "compile": True}
    alone = sample(sde, torch.zeros(20_000, 20, dtype=torch.float32), **options).state
    assert ended.code == 0, ended.text
    assert ended.states == hashlib.sha256(alone.numpy().tobytes()).hexdigest()
