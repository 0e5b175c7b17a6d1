"""A run: from a config to a folder with its results."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from . import NAMES, experiment_named
from .base import Conclusion, Context, Result
from .config import ConfigError, Seed, build, check_keys, merge, plain, read_yaml, to_yaml
from .folder import RunFolder

_PROFILES = ("quick", "paper")  # sections that change settings
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Config:
    """What every config file has. ``settings`` are the experiment's own, and those of the profile "full"; entries under
    ``quick`` or ``paper`` change them for a run of a minute, or for one of the paper's sizes where these take a day."""

    experiment: Literal[NAMES]  # type: ignore[valid-type]
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
    name = build(Literal[NAMES], written.get("experiment"), file=str(file), key="experiment")
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


def execute(config: Config, output: Path, resume: bool) -> Conclusion:
    """Measure what is not measured yet, conclude, and write everything."""
    experiment = experiment_named(config.experiment)
    context = Context(
        seed=config.seed,
        device=_device(config.device),
        dtype=_DTYPES[config.dtype],
        compile=config.compile,
        progress=sys.stderr.isatty(),
    )
    with RunFolder(output, resolved(config), resume) as folder:
        folder.note_environment(environment(context.seed, context.device))
        units = experiment.plan(config.settings)
        results = measured(
            folder, units, lambda unit, _: experiment.measure(config.settings, unit, context), context.progress
        )
        conclusion = experiment.conclude(config.settings, results)
        _write(folder, config, results, conclusion)
    return conclusion


def measured(
    folder: RunFolder, units: Sequence[str], measure: Callable[[str, Mapping[str, Result]], Result], progress: bool
) -> dict[str, Result]:
    """The results of the units: those that are not in the folder are measured, given the units before them, and kept
    there."""
    from tqdm import tqdm

    results: dict[str, Result] = {}
    bar = tqdm(units, unit="unit", position=0, disable=not progress)
    for number, unit in enumerate(bar, start=1):
        bar.set_description(unit)
        start, was_done = time.perf_counter(), folder.is_done(unit)
        results[unit] = folder.remember(unit, lambda u=unit: measure(u, results))  # type: ignore[misc]
        if not progress and not was_done:
            print(f"[{number}/{len(units)}] {unit}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return results


def _write(folder: RunFolder, config: Config, results: Mapping[str, Result], conclusion: Conclusion) -> None:
    from safetensors.torch import save

    tables = [folder.write_table(name, rows) for name, rows in conclusion.tables.items()]
    figures = [folder.write_figure(name, draw) for name, draw in conclusion.figures.items()]
    samples = {unit: result["samples"].contiguous() for unit, result in results.items() if "samples" in result}
    if samples:
        folder.write("samples.safetensors", save(samples))
    lines = [f"# {config.description}", "", f"Experiment {config.experiment}, profile {config.profile}.", ""]
    lines += [f"- {line}" for line in conclusion.lines()]
    lines += ["", *(f"![{file.stem}]({file.name})" for file in figures)]
    lines += ["", *(f"[{file.name}]({file.name})" for file in tables)]
    folder.write("summary.md", ("\n".join(lines) + "\n").encode())


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: cuda was asked for, and torch sees no CUDA device here: use cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def environment(seed: int, device: torch.device) -> dict[str, Any]:
    """What the numbers may depend on besides the config."""
    packages = ("torchsrk", "torch", "torchsde", "numpy", "geomloss", "POT")
    return {
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
        "commit": _commit(),
        "seed": seed,
        "device": str(device),
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """Of the source tree, if this file is in a repository; marked where the tree was changed."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:  # installed into somebody's repository
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40")


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
