"""Which vector instructions compiled pieces use: those that torch uses."""

from __future__ import annotations

import platform

import torch


def uses_avx512() -> bool:
    """Whether torch has AVX-512 here and has not been told to leave it, by ``ATEN_CPU_CAPABILITY=avx2``."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def flags_of_vectors() -> tuple[str, ...]:
    """What a C compiler that builds for this processor has to be told besides."""
    return () if uses_avx512() or platform.machine() not in ("x86_64", "AMD64") else ("-mno-avx512f",)
