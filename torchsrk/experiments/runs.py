"""A run: from a config to a folder with its results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch

from ..extras import require
from ..sampling import NonFiniteStateError
from . import NAMES, experiment_named, experiment_names, plots
from .base import Conclusion, Context, Experiment, Result, T
from .config import ConfigError, OneOf, Seed, build, check_keys, merge, plain, read_yaml, to_yaml
from .folder import RunFolder
from .imported import Imported
from .no_numbers import no_numbers
from .provenance import check_goes_on, environment

if TYPE_CHECKING:
    from ..distributed.together import Ranks

_PROFILES = ("quick", "paper")  # sections that change settings
_TIMED = ("schemes", "wall_time")  # their results hold times, which ranks beside one another would lengthen
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


ExperimentName = Annotated[str, OneOf(experiment_names)]


@dataclass(frozen=True)
class Config:
    """What every config file has. ``settings`` are the experiment's own, and those of the profile "full"; entries under
    ``quick`` or ``paper`` change them for a run of a minute, or for one of the paper's sizes where these take a day."""

    experiment: ExperimentName
    description: str
    settings: Any
    profile: Literal["quick", "full", "paper"] = "quick"
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    compile: bool = True


def load_config(file: Path, overrides: Mapping[str, Any]) -> Config:
    """A config with its profile applied and then the overrides; every error names the file and the key."""
    written = read_yaml(file)
    check_keys(written, [*(field.name for field in fields(Config)), *_PROFILES], where=f"{file}: ")
    name = build(ExperimentName, written.get("experiment"), file=str(file), key="experiment")
    kind = experiment_named(name).Settings
    known = [field.name for field in fields(kind)]
    settings = _mapping(written.get("settings"), f"{file}: settings")
    sections = {section: _mapping(written.pop(section, None), f"{file}: {section}") for section in _PROFILES}
    build(kind, settings, file=str(file), key="settings")
    for section, changes in sections.items():  # wrong in any profile is wrong
        check_keys(changes, known, where=f"{file}: {section}.")
        build(kind, merge(settings, changes), file=str(file), key="settings")
    profile = str(overrides.get("profile", written.get("profile", "quick")))
    written["settings"] = merge(settings, sections.get(profile, {}))
    written = merge(written, overrides)
    config = build(Config, written, file=str(file))
    built = build(kind, written["settings"], file=str(file), key="settings")
    return Config(**{**vars(config), "settings": built})


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected `key: value` lines; got {value!r}")
    return value or {}


def resolved(config: Config) -> str:
    """All of a config, as YAML that gives it again."""
    return to_yaml(plain(config))


def execute(
    config: Config, output: Path, resume: bool, imported: Sequence[Imported] = (), *, file: str = "the config"
) -> Conclusion | None:
    """Measure what is not measured yet, conclude, and write everything.

    Under torchrun ranks share out the units, and the first of them does the rest: None on the others. What was
    ``imported`` of the user's code is noted, and has to be the same when a run goes on; ``file`` is named in errors.
    """
    from ..distributed.claims import is_begun, note_begun, ranks_of_torchrun, wait_for

    require("matplotlib", "matplotlib", "experiments")
    experiment = experiment_named(config.experiment)
    plan = _planned(experiment, config, file)
    context = Context(
        seed=config.seed,
        device=_device(config.device),
        dtype=_DTYPES[config.dtype],
        compile=config.compile,
        progress=sys.stderr.isatty() and int(os.environ.get("RANK", "0")) == 0,
    )
    with ranks_of_torchrun(f"the run in {output}") as ranks:
        leads = ranks.rank == 0
        folder = RunFolder(output, resolved(config), resume or (leads and is_begun(ranks, str(output))), leads=leads)
        with _entered(folder, ranks):

            def measure(case: Any, _: Mapping[str, Result]) -> Result:
                return experiment.measure(config.settings, case, context)

            if leads:
                note_begun(ranks, str(output))
                now = environment(context.seed, context.device, imported) | _ranks_noted(ranks)
                check_goes_on(folder.environments(), now, output)
                folder.note_environment(now)
            if ranks.size > 1:
                _share_out(folder, plan, measure, context.progress, ranks, alone=config.experiment in _TIMED)
                wait_for(ranks, list(plan), folder.is_done)
            if not leads:
                return None
            results = measured(folder, plan, measure, context.progress and ranks.size == 1)
            conclusion = experiment.conclude(config.settings, results)
            if config.experiment not in NAMES:  # which know where they have no number
                conclusion = replace(conclusion, notes=[*conclusion.notes, *no_numbers(results)])
            _write(folder, config, results, conclusion, imported)
    return conclusion


def _planned(experiment: Experiment, config: Config, file: str) -> Mapping[str, Any]:
    """The cases by their names, or an error of the config if its settings make none."""
    try:
        planned = experiment.plan(config.settings)
    except ValueError as error:
        raise ConfigError(f"{file}: settings: {error}") from error
    return planned if isinstance(planned, Mapping) else {name: name for name in planned}


@contextmanager
def _entered(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Within: the first rank holds the folder, and the others have come after it."""
    if ranks.rank > 0:
        ranks.gathered(torch.zeros(1), f"the folder {folder.path}")
    with folder:
        if ranks.rank == 0:
            ranks.gathered(torch.zeros(1), f"the folder {folder.path}")
        yield


def _ranks_noted(ranks: Ranks) -> dict[str, int]:
    return {"ranks": ranks.size} if ranks.size > 1 else {}


def _share_out(
    folder: RunFolder,
    plan: Mapping[str, Any],
    measure: Callable[[Any, Mapping[str, Result]], Result],
    progress: bool,
    ranks: Ranks,
    alone: bool,
) -> None:
    """Measure what no rank has measured yet, and say so: with one bar, or a line for every unit."""
    from tqdm import tqdm

    from ..distributed.claims import claimed

    if alone and ranks.rank > 0:
        return
    bar = tqdm(total=len(plan), unit="unit", position=0, disable=not progress or ranks.rank > 0)
    with bar:
        for unit in claimed(ranks, list(plan), folder.is_done):
            bar.set_description(unit)
            start = time.perf_counter()
            folder.remember(unit, lambda case=plan[unit]: measure(case, {}))  # type: ignore[misc]
            done = sum(map(folder.is_done, plan))
            bar.update(done - bar.n)
            if not progress:
                took = time.perf_counter() - start
                print(f"[{done}/{len(plan)}] {unit}: {took:.1f} s, rank {ranks.rank}", file=sys.stderr)


def measured(
    folder: RunFolder, plan: Mapping[str, T], measure: Callable[[T, Mapping[str, Result]], Result], progress: bool
) -> dict[str, Result]:
    """The results of a plan, cases by their names: those that are not in the folder are measured, given the results
    before them, and kept there."""
    from tqdm import tqdm

    results: dict[str, Result] = {}
    bar = tqdm(plan.items(), unit="unit", position=0, disable=not progress)
    for number, (unit, case) in enumerate(bar, start=1):
        bar.set_description(unit)
        start, was_done = time.perf_counter(), folder.is_done(unit)
        try:
            results[unit] = folder.remember(unit, lambda case=case: measure(case, results))  # type: ignore[misc]
        except NonFiniteStateError as error:  # one of many settings was too bold: which?
            error.args = (f"{unit}: {error}",)
            raise
        if not progress and not was_done:
            print(f"[{number}/{len(plan)}] {unit}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return results


def _write(
    folder: RunFolder,
    config: Config,
    results: Mapping[str, Result],
    conclusion: Conclusion,
    imported: Sequence[Imported],
) -> None:
    from safetensors.torch import save

    tables = [folder.write_table(name, rows) for name, rows in conclusion.tables.items()]
    figures = {name: plots.pictures(draw) for name, draw in conclusion.figures.items()}
    for name, (kind, content) in ((name, file) for name, files in figures.items() for file in files.items()):
        folder.write(f"{name}.{kind}", content)
    samples = {unit: result["samples"].contiguous() for unit, result in results.items() if "samples" in result}
    if samples:
        folder.write("samples.safetensors", save(samples))
    lines = [f"# {config.description}", "", f"Experiment {config.experiment}, profile {config.profile}.", ""]
    if imported:
        digests = {file: digest for code in imported for file, digest in code.digests.items()}
        files = ", ".join(f"{file} (SHA-256 {digest[:12]})" for file, digest in digests.items())
        lines += [f"Imported: {files or ', '.join(code.given for code in imported)}.", ""]
    lines += [f"- {line}" for line in conclusion.lines()]
    lines += ["", *(f"![{name}]({name}.png)" for name in figures)]
    lines += ["", *(f"[{file.name}]({file.name})" for file in tables)]
    folder.write("summary.md", ("\n".join(lines) + "\n").encode())


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: cuda was asked for, and torch sees no CUDA device here: use cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
