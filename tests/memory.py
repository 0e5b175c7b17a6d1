"""Peak memory of a piece of code, in a process of its own."""

import subprocess
import sys

# Not ru_maxrss: a child process starts with its parent's. VmHWM belongs to the new program alone.
PREAMBLE = """
import sys, torch
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
"""


def run_numbers(code: str, *arguments: str) -> list[float]:
    """The numbers that the code prints; ``peak()`` in it is the process's peak memory so far, in MB."""
    command = [sys.executable, "-c", PREAMBLE + code, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(number) for number in run.stdout.split()]
