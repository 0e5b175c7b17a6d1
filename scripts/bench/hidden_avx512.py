"""Hide AVX-512 from jax, whose library of matrix products has no switch for it and goes by what the processor says."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

HIDE = "BENCH_HIDES_AVX512"
_SOURCE = Path(__file__).with_name("hide_avx512.c")


def hide_if_asked() -> None:
    """Answer jax's questions to the processor without AVX-512, if ``HIDE`` is set. Before jax computes anything."""
    if not os.environ.get(HIDE):
        return
    library = Path(find_spec("jaxlib").origin).with_name("libjax_common.so").resolve()
    ctypes.CDLL(str(library))  # to be where it will be used
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "hide.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(built)], check=True)
        hide = ctypes.CDLL(str(built)).hide_avx512
    hide.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    if sum(hide(start, end - start) for start, end in _code_of(library)) <= 0:
        raise RuntimeError(f"{library.name} asks the processor in a way that is not known here: AVX-512 is not hidden")


def _code_of(library: Path) -> list[tuple[int, int]]:
    """From where to where its instructions are in memory."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    ours = [parts for parts in mapped if len(parts) == 6 and parts[5] == str(library) and "x" in parts[1]]
    return [tuple(int(end, 16) for end in parts[0].split("-")) for parts in ours]
