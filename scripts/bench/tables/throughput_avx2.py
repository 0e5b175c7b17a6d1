"""The throughput table once more with AVX-512 switched off, as far as switches go, where the processor has it."""

from __future__ import annotations

from collections.abc import Mapping

from cases import Case
from machine import has_avx512
from tables import throughput

TITLE = "Throughput beside a jax scan, AVX-512 switched off"


def without_avx512(environment: Mapping[str, str]) -> dict[str, str]:
    """torchsrk does as torch does; jax's compiler, and the libraries that both call, have switches of their own.

    But for one: the library of jax 0.10's matrix products goes by the processor. See ``render``.
    """
    switches = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    flags = f"{environment.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX2".strip()
    return {**environment, **switches, "XLA_FLAGS": flags}


ENVIRONMENT = without_avx512({})
_NO_SWITCH = """The library that jax 0.10 calls for matrix products has no switch, and uses AVX-512 where it is. On a
processor that works through such vectors in halves (AMD Zen 4) that changes little; on one that takes them whole (AMD
Zen 5, Intel Xeon) regressions and networks are compared with AVX-512 on jax's side alone."""

measure = throughput.measure


def plan(quick: bool) -> dict[str, Case]:
    return throughput.plan(quick) if has_avx512() else {}


def render(rows: list[dict]) -> str:
    if not rows:
        return "This processor has no AVX-512: the table above is this one.\n"
    switches = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    return f"With `{switches}`. {_NO_SWITCH}\n\n{throughput.render(rows)}"
