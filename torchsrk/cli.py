"""The ``torchsrk`` command."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch

from .checkpoints import CheckpointError
from .distributed import RankError
from .experiments import theory
from .experiments.config import ConfigError, nearest_file, parse_overrides, read_yaml
from .experiments.folder import FolderError
from .experiments.laws import QuadratureError
from .experiments.named_potentials import NAMES
from .experiments.posterior import as_markdown
from .experiments.posterior_runs import Settings, execute_sample
from .experiments.report import write_report
from .experiments.runs import Config, execute, load_config, resolved
from .experiments.user_code import TargetError, import_code
from .extras import MissingPackageError
from .sampling import NonFiniteStateError
from .version import __version__

# The message of these is all that a user needs: a config, a folder, a disk, a step, sizes beyond the machine.
_USERS = (
    *(ConfigError, FolderError, CheckpointError, NonFiniteStateError, QuadratureError, TargetError),
    *(OSError, MemoryError, torch.OutOfMemoryError, MissingPackageError),
)
_UNTRUSTED = 3  # so that `torchsrk sample ... && next` stops
_SAMPLE = f"""\
TARGET is code that you run on purpose, MODULE:NAME or FILE.py:NAME, or a YAML file.

NAME is a torchsrk Potential, a torch distribution, an nn.Module or a function of points (..., dim) to log densities
(...), up to a constant; or a function or class that needs no argument and makes one of these. A log density says the
shape of its points by --dim or by its own attribute `dim` or `event_shape`, and if it likes its `support` (of
torch.distributions.constraints, by default all of space) and the `names` of its parameters, a list or a dict from names
to the shapes of arrays.

A YAML file names a potential of this package, and its numbers; it can't name code:
target: {"|".join(NAMES)}

DIR gets summary.md and summary.csv (means, standard deviations, quantiles; whether to trust them), posterior.png,
draws.safetensors (draws, particles, ...), plan.safetensors, config.yaml and provenance.json. Killed at any moment, the
same command with --resume goes on, to the same bits.

exit codes: 0 done, and nothing speaks against the draws; {_UNTRUSTED} done, but the draws should not be trusted as is;
2 refused, or failed; 130 stopped."""
CONFIGS = Path(__file__).parent / "configs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options, rest = _parsed(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # nothing is lost to a terminal that knows no "²"
    try:
        options.imported = [import_code(module) for module in getattr(options, "imports", ())]
        commands = {"sample": _sample, "run": _run, "theory": _theory, "list": _list, "report": _report}
        code = commands[options.command](options, rest)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        hint = "; --resume goes on from here" if options.command in ("run", "theory", "sample") else ""
        print(f"\ntorchsrk: stopped{hint}", file=sys.stderr)
        return 130
    except _USERS as error:
        if isinstance(error, TargetError) and error.trace:
            print(error.trace, end="", file=sys.stderr)
        return _refused(str(error) or type(error).__name__)
    except RankError as error:
        # The rank that failed has said why, if it is known which.
        return _refused(str(error)) if error.rank is None else 2
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        return _refused(f"sizes beyond this machine: {error}")


def _refused(message: str) -> int:
    print(f"torchsrk: error: {message}", file=sys.stderr)
    return 2


def _parsed(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="torchsrk", description="Sample posteriors, and run experiments from YAML configs."
    )
    parser.add_argument("--version", action="version", version=f"torchsrk {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_sample(commands)
    for name, text in (("run", "run a config"), ("theory", "what bounds plan for a config, and what is needed")):
        run = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_entries(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        run.add_argument("config", help="a YAML file, or the name of a shipped config (`torchsrk list`)")
        run.add_argument("--output", type=Path, help="the run's folder, by default results/NAME-PROFILE")
        run.add_argument("--resume", action="store_true", help="go on with the run in the folder")
        run.add_argument("--print_config", action="store_true", help="show the resolved config and stop")
        _add_import(run)
    commands.add_parser("list", help="the shipped configs")
    report = commands.add_parser("report", help="one HTML page with the figures, tables and settings of runs")
    report.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="folders of finished runs")
    report.add_argument("--output", type=Path, default=Path("report.html"), help="the page, by default report.html")
    options, rest = parser.parse_known_args(arguments)
    if options.command not in ("run", "theory") and rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options, rest


def _add_sample(commands: Any) -> None:
    sample = commands.add_parser(
        "sample",
        help="draw from a density of yours, without a number",
        description="Tune a sampler to a density, draw from it, and say whether the draws can be trusted.",
        epilog=_SAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    sample.add_argument("target", metavar="TARGET", help="MODULE:NAME, FILE.py:NAME or a YAML file: see below")
    sample.add_argument("--output", type=Path, required=True, metavar="DIR", help="the run's folder")
    sample.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    for name, kind, text in (
        ("draws", int, "of every particle"),
        ("particles", int, "means are known to 1/√(draws·particles) standard deviations"),
        ("tolerance", float, "the bias that is allowed, in standard deviations"),
        ("seed", int, "of everything that is random"),
        ("dim", int, "of a log density's points, where it does not say"),
    ):
        default = getattr(Settings, name)
        shown = text if default is None else f"{text}; by default {default}"
        sample.add_argument(f"--{name}", type=kind, default=default, help=shown)
    sample.add_argument("--compile", action="store_true", help="run steps as one C loop")
    _add_import(sample)


def _add_import(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="code of yours, MODULE or FILE.py, that is run first: the schemes, potentials and experiments that it "
        "registers can then be named in configs; may be given several times",
    )


def _entries() -> str:
    """What every config has, and so can be said on the command line."""
    lines = ["Any entry of the config is changed by its dotted key, such as --settings.chains 500. Every config has:"]
    hints = get_type_hints(Config)
    for field in fields(Config):
        if field.name in ("experiment", "description", "settings"):
            continue
        choices = get_args(hints[field.name]) or {bool: ("true", "false")}.get(hints[field.name], ("N",))
        lines.append(f"  --{field.name} {'|'.join(choices)}".ljust(36) + f"by default {field.default}".lower())
    return "\n".join(lines)


def _sample(options: argparse.Namespace, rest: Sequence[str]) -> int:
    wanted = {name: getattr(options, name) for name in ("draws", "particles", "tolerance", "seed", "dim", "compile")}
    done = execute_sample(options.target, wanted, options.output, options.resume, options.imported)
    if done.was_done:
        print(f"{options.output} is finished: nothing was drawn")
    print("\n".join([*as_markdown(done.summary.rows, most=20), "", done.summary.diagnosis]), end="\n\n")
    for file in done.files:
        print(f"{file.stem + ':':10} {file}")
    if done.summary.trusted:
        return 0
    sys.stdout.flush()
    print(f"torchsrk: DO NOT TRUST these draws: {'; '.join(done.summary.troubles)}", file=sys.stderr)
    return _UNTRUSTED


def _theory(options: argparse.Namespace, rest: Sequence[str]) -> int:
    file = _config_file(options.config)
    experiment = load_config(file, parse_overrides(rest)).experiment
    if experiment != "theory":
        raise ConfigError(f"{file}: experiment: expected theory; got {experiment}: `torchsrk run` is for that")
    return _run(options, rest)


def _run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    file = _config_file(options.config)
    config = load_config(file, parse_overrides(rest))
    if options.print_config:
        print(resolved(config), end="")
        return 0
    output = options.output or Path("results") / f"{file.stem}-{config.profile}"
    conclusion = execute(config, output, options.resume, options.imported, file=str(file))
    if conclusion is None:  # another rank says what was found
        return 0
    if options.command == "theory":
        print("\n".join(theory.table(conclusion)), end="\n\n")
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
    file = shipped.get(given, Path(given))
    if not file.exists():
        meant = nearest_file(file, list(shipped))
        raise ConfigError(
            f"{given}: there is no such file, and no shipped config of this name{meant}: `torchsrk list` shows them"
        )
    return file


if __name__ == "__main__":
    sys.exit(main())
