"""The ``torchsrk`` command."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from .checkpoints import CheckpointError
from .experiments.config import ConfigError, parse_overrides, read_yaml
from .experiments.folder import FolderError
from .experiments.laws import QuadratureError
from .experiments.report import write_report
from .experiments.runs import execute, load_config, resolved
from .sampling import NonFiniteStateError

# The message of these is all that a user needs: a config, a folder, a disk, a step, sizes beyond the machine.
_USERS = (
    *(ConfigError, FolderError, CheckpointError, NonFiniteStateError, QuadratureError),
    *(OSError, MemoryError, torch.OutOfMemoryError),
)
# Within the package where it is installed, or beside it in a source tree.
CONFIGS = next(
    (
        folder
        for folder in (Path(__file__).parent / "configs", Path(__file__).parent.parent / "configs")
        if folder.is_dir()
    ),
    Path("configs"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options, rest = _parsed(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # nothing is lost to a terminal that knows no "²"
    try:
        code = {"run": _run, "list": _list, "report": _report}[options.command](options, rest)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        hint = "; --resume goes on from here" if options.command == "run" else ""
        print(f"\ntorchsrk: stopped{hint}", file=sys.stderr)
        return 130
    except _USERS as error:
        return _refused(str(error) or type(error).__name__)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        return _refused(f"sizes beyond this machine: {error}")


def _refused(message: str) -> int:
    print(f"torchsrk: error: {message}", file=sys.stderr)
    return 2


def _parsed(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="torchsrk", description="Run experiments from YAML configs.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a config", allow_abbrev=False)
    run.add_argument("config", help="a YAML file, or the name of a shipped config; --dotted.key value changes an entry")
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
    return options, rest


def _run(options: argparse.Namespace, rest: Sequence[str]) -> int:
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


def _list(options: argparse.Namespace, rest: Sequence[str]) -> int:
    for file in sorted(CONFIGS.glob("*.yaml")):
        print(f"{file.stem:22} {read_yaml(file).get('description', '')}")
    return 0


def _report(options: argparse.Namespace, rest: Sequence[str]) -> int:
    write_report(options.runs, options.output)
    print(f"report: {options.output}")
    return 0


def _config_file(given: str) -> Path:
    shipped = {file.stem: file for file in CONFIGS.glob("*.yaml")}
    return shipped.get(given, Path(given))


if __name__ == "__main__":
    sys.exit(main())
