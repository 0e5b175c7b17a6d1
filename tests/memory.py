"""Peak memory of a piece of code, in a process of its own."""

from tests import forks

# Not ru_maxrss: a child process starts with its parent's. VmHWM begins with what is there at the fork.
PREAMBLE = """
import sys, torch
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
"""


def run_numbers(code: str, *arguments: str) -> list[float]:
    """The numbers that the code prints; ``peak()`` in it is the process's peak memory so far, in MB."""
    done = forks.run(PREAMBLE + code, *arguments)
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.split()]
