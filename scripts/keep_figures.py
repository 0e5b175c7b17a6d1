#!/usr/bin/env python
"""Keeps the figures of finished runs in docs/figures: PNG, SVG, and the run's tables as CSV.

    python scripts/keep_figures.py results/fig1a results/schemes
    python scripts/keep_figures.py results/quickstart first_look=first_look

A run's only figure takes the run's name, one of several the figure's after it. To keep some alone, or by other names,
give figure=name after one run. Files above 300 kB are left out, and named.
"""

from __future__ import annotations

import argparse
from pathlib import Path

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
MOST_BYTES = 300_000


def names_of(run: Path) -> dict[str, str]:
    """The name that each figure of a run is kept by."""
    figures = sorted(file.stem for file in run.glob("*.png"))
    return {figure: run.name if len(figures) == 1 else f"{run.name}-{figure}" for figure in figures}


def keep(run: Path, names: dict[str, str], into: Path = FIGURES) -> list[str]:
    """Copies a run's figures and tables, and returns what was left out and why."""
    if not (run / "summary.md").is_file():
        raise SystemExit(f"{run} holds no finished run: `torchsrk run` writes its summary.md last")
    wanted = {run / f"{figure}.{kind}": f"{name}.{kind}" for figure, name in names.items() for kind in ("png", "svg")}
    wanted |= {table: f"{run.name}-{table.name}" for table in sorted(run.glob("*.csv"))}
    left = []
    for file, name in wanted.items():
        if not file.is_file():
            raise SystemExit(f"{run} has no {file.name}; its figures are {', '.join(names_of(run))}")
        size = file.stat().st_size
        if size > MOST_BYTES and file.suffix != ".png":
            left.append(f"{name}: {size // 1000} kB, and the most is {MOST_BYTES // 1000}")
            (into / name).unlink(missing_ok=True)
        else:
            (into / name).write_bytes(file.read_bytes())
    return left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="RUN [FIGURE=NAME ...]")
    what = parser.parse_args().what
    pairs = [entry for entry in what if "=" in entry and not Path(entry).is_dir()]
    runs = [Path(entry).resolve() for entry in what if entry not in pairs]
    if not runs or (pairs and len(runs) > 1):
        parser.error(f"expected runs, or one run with figure=name for some of its figures; got {' '.join(what)}")
    for run in runs:
        for line in keep(run, dict(pair.split("=", 1) for pair in pairs) or names_of(run)):
            print(f"left out {line}")


if __name__ == "__main__":
    main()
