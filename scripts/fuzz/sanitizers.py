"""The generated C and the noise kernel under AddressSanitizer and UBSan."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1")
_KERNEL_FLAGS = ("-std=gnu11", "-ffp-contract=off", "-fPIC", "-shared", "-pthread")


@dataclass(frozen=True)
class Sanitized:
    """What a worker does first: load the kernel that was built with sanitizers, and draw in awkward shapes."""

    kernel: str

    @classmethod
    def prepared(cls, folder: Path) -> Sanitized:
        """Build the kernel, put a compiler that adds the flags into CC, and have new processes load the sanitizers."""
        import torchsrk.brownian

        real = os.environ.get("CC", "gcc").split()[0]
        source = Path(torchsrk.brownian.__file__).with_name("philox.c")
        kernel = folder / "philox.so"
        subprocess.run([real, *_KERNEL_FLAGS, *_FLAGS, "-o", str(kernel), str(source), "-lm"], check=True)
        wrapper = folder / "cc"
        # The compiler itself runs without them: it is slower so, and its leaks are its own.
        wrapper.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {real} "$@" {" ".join(_FLAGS)}\n')
        wrapper.chmod(0o700)
        libraries = [_library(real, name) for name in ("libasan.so", "libubsan.so")]
        os.environ |= {
            "CC": str(wrapper),
            "LD_PRELOAD": " ".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        return cls(str(kernel))

    def __call__(self) -> None:
        from torchsrk.brownian import native

        kernel = ctypes.CDLL(self.kernel)
        for function, signature in (
            (kernel.torchsrk_fill, native._FILL_SIGNATURE),
            (kernel.torchsrk_fill_tile, native._FILL_TILE_SIGNATURE),
        ):
            function.argtypes, function.restype = signature, None
        native.library = lambda: kernel  # type: ignore[assignment]
        draw_awkward_shapes()


def draw_awkward_shapes() -> None:
    """Noise of one particle, of odd numbers of components, from places that are no multiple of a vector's width."""
    import torch

    from torchsrk.brownian import fill_normal

    for dtype in (torch.float32, torch.float64):
        for steps, particles, components in ((1, 1, 1), (3, 1, 5), (2, 7, 3), (1, 33, 17), (5, 2, 31), (2, 1000, 1)):
            for step, first_particle, first_component in ((0, 0, 0), (2**40, 2**31 + 5, 4), (7, 3, 12)):
                out = torch.empty(steps, particles, components, dtype=dtype)
                where = {"step": step, "first_particle": first_particle, "first_component": first_component}
                fill_normal(out, seed=2**63 + 1, stream=1, threads=2, **where)
                assert out.isfinite().all()


def _library(compiler: str, name: str) -> str:
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(found.stdout.strip())
