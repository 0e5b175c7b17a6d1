"""Kill ranks of a run with SIGKILL at random moments, and see that it ends by itself with the bits of one process.

    python scripts/kill_ranks.py --kills 10

First under ``torchrun --max-restarts``: every run loses one of its two ranks. Then without restarts: an error is to
come in less than 30 s, and the checkpoint is to be gone on with by 1, 2 and 3 ranks.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

JOB = Path(__file__).with_name("resumable_job.py")


@dataclass(frozen=True)
class Ended:
    code: int
    seconds: float
    text: str

    @property
    def states(self) -> str | None:
        found = re.search(r"states ([0-9a-f]{64})", self.text)
        return found and found[1]


class Job:
    """A torchrun of the job, whose ranks can be killed."""

    def __init__(self, folder: Path, ranks: int, restarts: int, steps: int) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command += ["--max-restarts", str(restarts), str(JOB), "--folder", str(folder), "--steps", str(steps)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=subprocess.STDOUT)

    def ranks(self) -> list[int]:
        """The processes of its ranks."""
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def end(self, timeout: float) -> Ended:
        begun = time.monotonic()
        try:
            code = self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                for pid in (*self.ranks(), self.process.pid):
                    os.kill(pid, signal.SIGKILL)
                self.process.wait()
        with self._log:
            self._log.seek(0)
            return Ended(code, time.monotonic() - begun, self._log.read().decode())


def killed(folder: Path, *, restarts: int, steps: int, after: float, rank: int) -> Ended:
    """The job, one of whose two ranks is killed some seconds after they began; sooner if it has ended by then."""
    job = Job(folder, 2, restarts, steps)
    while len(job.ranks()) < 2 and job.process.poll() is None:
        time.sleep(0.05)
    time.sleep(after)
    victims = job.ranks()[rank : rank + 1] if job.process.poll() is None else []
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    ended = job.end(timeout=300.0)
    if victims or after < 0.1:
        return ended
    print(f"had ended before {after:.1f} s: again, killed after half of that", flush=True)
    shutil.rmtree(folder)
    return killed(folder, restarts=restarts, steps=steps, after=after / 2, rank=rank)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, folder = random.Random(options.seed), Path(tempfile.mkdtemp())
    alone = Job(folder / "alone", 1, 0, options.steps).end(timeout=600.0)
    pair = Job(folder / "pair", 2, 0, options.steps).end(timeout=600.0)
    assert alone.states is not None, alone.text
    assert alone.states == pair.states, pair.text
    longest, wrong = pair.seconds, 0
    print(f"one process and two ranks: {alone.states[:16]}, {alone.seconds:.0f} and {pair.seconds:.0f} s", flush=True)
    for kill in range(options.kills):
        after, rank = chance.uniform(0.0, longest), chance.randrange(2)
        ended = killed(folder / f"kill-{kill}", restarts=3, steps=options.steps, after=after, rank=rank)
        same = ended.code == 0 and ended.states == alone.states
        wrong += not same
        print(f"rank {rank} killed after {after:4.1f} s: {'same bits' if same else ended.text}", flush=True)
    after = 0.6 * longest
    ended = killed(folder / "lost", restarts=0, steps=options.steps, after=after, rank=1)
    wrong += ended.code == 0 or ended.seconds > 30.0
    print(f"without restarts: code {ended.code} after {ended.seconds:.1f} s", flush=True)
    for ranks in (1, 2, 3):
        shutil.copytree(folder / "lost", folder / f"resumed-{ranks}")
        again = Job(folder / f"resumed-{ranks}", ranks, 0, options.steps).end(timeout=600.0)
        same = again.code == 0 and again.states == alone.states
        wrong += not same
        print(f"gone on with by {ranks}: {'same bits' if same else again.text} in {again.seconds:.0f} s", flush=True)
    shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
