"""The tables of BENCHMARKS.md, one a file, in their order there.

Each file has ``TITLE``; ``plan(quick)``, cases by the names of their files; ``measure(case, crew)``, the row of one, in
plain types for JSON; and ``render(rows)``, the markdown from as many rows as there are. Some have ``ENVIRONMENT``, what
is set for their workers.
"""

from types import ModuleType

from tables import (
    accuracy,
    compile_time,
    growth,
    levy_area,
    noise_bound,
    peers,
    posteriors,
    throughput,
    throughput_avx2,
)

TABLES: dict[str, ModuleType] = {
    "throughput": throughput,
    "throughput-avx2": throughput_avx2,
    "peers": peers,
    "accuracy": accuracy,
    "growth": growth,
    "noise-bound": noise_bound,
    "compile-time": compile_time,
    "levy-area": levy_area,
    "posteriors": posteriors,
}
