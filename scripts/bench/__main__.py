"""The benchmark beside other libraries: ``python scripts/bench`` measures every table and writes BENCHMARKS.md.

Needs the environment that ``make bench`` sets up. ``--quick`` shows in a few minutes that all of it works, at sizes
that say nothing, and leaves BENCHMARKS.md alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crew import Crew
from machine import describe
from report import Report
from tables import TABLES

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    options = _options()
    folder = options.output / ("bench-quick" if options.quick else "bench")
    markdown = folder / "BENCHMARKS.md" if options.quick else ROOT / "BENCHMARKS.md"
    _warn_if_busy()
    report = Report(folder, markdown, describe())
    run_seconds, most_seconds = (0.05, 0.5) if options.quick else (0.2, 5.0)
    # Empty caches: what runs compiled was compiled in this run.
    with TemporaryDirectory() as cache:
        environment = {"TORCHSRK_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        for name in options.only or TABLES:
            more = getattr(TABLES[name], "ENVIRONMENT", {})
            with Crew(options.rounds, run_seconds, most_seconds, {**environment, **more}) as crew:
                _measure(name, options, crew, report)
    print(markdown.read_text(encoding="utf-8"))


def _measure(name: str, options: argparse.Namespace, crew: Crew, report: Report) -> None:
    # Not above: workers import this module too, and torch must not come before their environment is set.
    from torchsrk.checkpoints import CheckpointError
    from torchsrk.experiments.config import to_yaml
    from torchsrk.experiments.folder import FolderError, RunFolder
    from torchsrk.experiments.runs import measured

    def measure(case: Any, before: Mapping[str, dict]) -> dict:
        row = TABLES[name].measure(case, crew)
        report.save(name, [*before.values(), row])
        return row

    path, config = report.folder / name, to_yaml({"rounds": options.rounds, "machine": report.machine})
    if not options.resume:
        shutil.rmtree(path, ignore_errors=True)
    try:
        with RunFolder(path, config, resume=True) as folder:
            rows = measured(folder, TABLES[name].plan(options.quick), measure, progress=sys.stderr.isatty())
    except (FolderError, CheckpointError) as error:
        raise SystemExit(f"{error}. Without --resume {name} is measured again.") from None
    report.save(name, list(rows.values()))


def _warn_if_busy() -> None:
    # Threads that wait for one another, as OpenMP's do, slow down tenfold when one of them has to share its core.
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"other processes keep {load:.1f} cores busy: the numbers will be off", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python scripts/bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes; writes bench-quick/ in the output folder alone"
    )
    parser.add_argument("--only", action="append", choices=TABLES, help="measure this table and keep the others")
    parser.add_argument("--output", type=Path, default=ROOT / "results", help="where measurements are kept (results/)")
    parser.add_argument("--resume", action="store_true", help="measure what a run that was stopped left out")
    parser.add_argument("--rounds", type=int, default=0, help="turns of every contender (7; 3 if quick)")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 7)
    if options.rounds < 2:
        parser.error(f"--rounds must be at least 2; got {options.rounds}")
    return options


if __name__ == "__main__":
    main()
