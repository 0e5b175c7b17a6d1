"""The throughput table once more with AVX-512 switched off, where the processor has it."""

from __future__ import annotations

from collections.abc import Mapping

from cases import Case
from hidden_avx512 import HIDE
from machine import has_avx512
from tables import throughput

TITLE = "Throughput beside a jax scan, AVX-512 switched off"


def without_avx512(environment: Mapping[str, str]) -> dict[str, str]:
    """torchsrk does as torch does; jax has a switch for its compiler, and none for its library of matrix products."""
    switches = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    flags = f"{environment.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX2".strip()
    return {**environment, **switches, "XLA_FLAGS": flags, HIDE: "1"}


ENVIRONMENT = without_avx512({})
_HIDDEN = """The library that jax 0.10 calls for matrix products has no such switch: here the processor's answers to it
leave AVX-512 out (`scripts/bench/hide_avx512.c`)."""

measure = throughput.measure


def plan(quick: bool) -> dict[str, Case]:
    return throughput.plan(quick) if has_avx512() else {}


def render(rows: list[dict]) -> str:
    if not rows:
        return "This processor has no AVX-512: the table above is this one.\n"
    switches = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items() if name != HIDE)
    return f"With `{switches}`. {_HIDDEN}\n\n{throughput.render(rows)}"
