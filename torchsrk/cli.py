"""The ``torchsrk`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# In a source tree, or beside the package where it is installed.
CONFIGS = next(
    (
        folder
        for folder in (Path(__file__).parent.parent / "configs", Path(__file__).parent / "configs")
        if folder.is_dir()
    ),
    Path("configs"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="torchsrk", description="Run experiments from YAML configs.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a config", allow_abbrev=False)
    run.add_argument("config", help="a YAML file, or the name of a shipped config")
    run.add_argument("--output", type=Path, help="the run's folder, by default results/NAME-PROFILE")
    run.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    run.add_argument("--print_config", action="store_true", help="show the resolved config and stop")
    commands.add_parser("list", help="the shipped configs")
    report = commands.add_parser("report", help="one HTML page with the figures, tables and settings of runs")
    report.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="folders of finished runs")
    report.add_argument("--output", type=Path, default=Path("report.html"), help="the page, by default report.html")
    options, rest = parser.parse_known_args(arguments)
    if options.command != "run" and rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    from .checkpoints import CheckpointError
    from .experiments.config import ConfigError
    from .experiments.folder import FolderError
    from .sampling import NonFiniteStateError

    try:
        if options.command == "run":
            return _run(options, rest)
        return _report(options) if options.command == "report" else _list()
    except (ConfigError, FolderError, CheckpointError, NonFiniteStateError) as error:
        print(f"torchsrk: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntorchsrk: stopped; --resume goes on from here", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    from .experiments.config import parse_overrides
    from .experiments.runs import execute, load_config, resolved

    file = _config_file(options.config)
    config = load_config(file, parse_overrides(rest))
    if options.print_config:
        print(resolved(config), end="")
        return 0
    output = options.output or Path("results") / f"{file.stem}-{config.profile}"
    conclusion = execute(config, output, options.resume)
    print("\n".join(conclusion.lines()), end="\n\n")
    for kind, names, ending in (("figure", conclusion.figures, "png"), ("table", conclusion.tables, "csv")):
        for name in names:
            print(f"{kind + ':':8} {output / name}.{ending}")
    return 0


def _list() -> int:
    from .experiments.config import read_yaml

    for file in sorted(CONFIGS.glob("*.yaml")):
        print(f"{file.stem:22} {read_yaml(file).get('description', '')}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from .experiments.report import write_report

    write_report(options.runs, options.output)
    print(f"report: {options.output}")
    return 0


def _config_file(given: str) -> Path:
    shipped = CONFIGS / f"{given}.yaml"
    return shipped if "/" not in given and shipped.exists() else Path(given)


if __name__ == "__main__":
    sys.exit(main())
