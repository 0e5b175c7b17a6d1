"""A run across two hosts, each a network namespace with its own address; then one whose link is cut in the middle.

    python scripts/two_hosts.py        # as root, with iproute2; exit code 77 and a reason where that can't be

The namespaces and their link are this script's own, and go with it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JOB = Path(__file__).with_name("resumable_job.py")
SKIPPED = 77
PORT = 29655


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


@contextmanager
def two_hosts() -> Iterator[list[str]]:
    """Namespaces with the addresses 10.77.0.1 and 10.77.0.2, and a link between them."""
    hosts = [f"torchsrk-{os.getpid()}-{number}" for number in (1, 2)]
    try:
        for host in hosts:
            ip("netns", "add", host)
        ip("link", "add", "wire", "netns", hosts[0], "type", "veth", "peer", "name", "wire", "netns", hosts[1])
        for number, host in enumerate(hosts, start=1):
            ip("-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "wire")
            for link in ("lo", "wire"):
                ip("-n", host, "link", "set", link, "up")
        yield hosts
    finally:
        for host in hosts:
            ip("netns", "del", host, check=False)


class Run:
    """The job, with a rank on every host."""

    def __init__(self, hosts: list[str], folder: Path, steps: int, timeout: float) -> None:
        self._logs, self.nodes = [], []
        for number, host in enumerate(hosts):
            command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"]
            command += ["--nnodes", str(len(hosts)), "--node-rank", str(number), "--nproc-per-node", "1"]
            command += ["--master-addr", "10.77.0.1", "--master-port", str(PORT), str(JOB)]
            command += ["--folder", str(folder), "--steps", str(steps), "--timeout", str(timeout)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "wire"}
            log = tempfile.TemporaryFile()  # noqa: SIM115
            self._logs.append(log)
            self.nodes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))

    def text(self) -> str:
        """What its hosts have said."""
        for log in self._logs:
            log.seek(0)
        return "\n".join(log.read().decode() for log in self._logs)

    def end(self, timeout: float) -> list[int]:
        """The exit codes of its hosts."""
        deadline = time.monotonic() + timeout
        try:
            return [node.wait(max(1.0, deadline - time.monotonic())) for node in self.nodes]
        finally:
            self.stop()

    def stop(self) -> None:
        """End what is left of it."""
        for node in self.nodes:
            if node.poll() is None:
                node.terminate()
        for node in self.nodes:
            node.wait()


def states_in(text: str) -> str | None:
    found = re.search(r"states ([0-9a-f]{64})", text)
    return found and found[1]


def alone(folder: Path, steps: int) -> str | None:
    command = [sys.executable, str(JOB), "--folder", str(folder), "--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return states_in(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--timeout", type=float, default=15.0, help="seconds that a rank waits for another")
    options = parser.parse_args()
    folder, wrong = Path(tempfile.mkdtemp()), 0
    try:
        with two_hosts() as hosts:
            expected = alone(folder / "alone", options.steps)
            run = Run(hosts, folder / "whole", options.steps, options.timeout)
            codes = run.end(600.0)
            same = expected is not None and states_in(run.text()) == expected
            wrong += codes != [0, 0] or not same
            print(f"two hosts: {'same bits' if same else run.text()}", flush=True)
            run = Run(hosts, folder / "cut", options.steps, options.timeout)
            while not (folder / "cut" / "checkpoint.json").exists() and run.nodes[0].poll() is None:
                time.sleep(0.05)
            ip("-n", hosts[0], "link", "set", "wire", "down")
            begun = time.monotonic()
            while run.text().count("RankError: ") < 2 and time.monotonic() - begun < 10.0 * options.timeout:
                time.sleep(0.5)
            seconds, said = time.monotonic() - begun, re.findall(r"RankError: (.*)", run.text())
            run.stop()
            wrong += len(said) < 2
            print(f"link cut, timeout {options.timeout:.0f} s: both hosts say so after {seconds:.0f} s", flush=True)
            print("\n".join(said) or run.text(), flush=True)
            ip("-n", hosts[0], "link", "set", "wire", "up")
            run = Run(hosts, folder / "cut", options.steps, options.timeout)
            codes = run.end(600.0)
            same = states_in(run.text()) == expected
            wrong += codes != [0, 0] or not same
            print(f"gone on with: {'same bits' if same else run.text()}", flush=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: namespaces can't be made here ({error})")
        return SKIPPED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
