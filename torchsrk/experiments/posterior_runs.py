"""A posterior: from a target to a folder with its plan, its draws and what they tell."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ..checkpoints import save_checkpoint
from ..distributions import DiffusionDistribution
from ..extras import require
from ..sampling import Run
from ..targets import tensor_of
from ..tuning import Tuning
from .base import Context, Result
from .config import Count, Dimension, Positive, Range, Seed, build, plain
from .folder import FolderError, RunFolder
from .imported import Imported
from .named_potentials import potential_in
from .posterior import PosteriorSummary, as_markdown, parameter_names, summarized
from .provenance import environment
from .runs import measured
from .user_code import Given, TargetError, target_at, users_code

_MOST_PIECES = 100  # a kill loses at most a hundredth of the draws, and a folder has few files
_LOOKED_AT = 16  # points whose densities tell a target from another
_ROUNDING = 1000.0  # epsilons, between densities of the same points on two machines
_SUMMARY = "summary.md"


@dataclass(frozen=True)
class Settings:
    """What ``torchsrk sample`` was asked for; ``target`` is the name of an object, or what a YAML file says."""

    target: Any
    draws: Count = 10
    particles: Annotated[int, Range(32, 10**8)] = 1000
    tolerance: Positive = 0.05
    seed: Seed = 0
    dim: Dimension | None = None
    compile: bool = False


@dataclass(frozen=True)
class Done:
    """A run that is complete: what it found, its files, and whether it had been complete before."""

    summary: PosteriorSummary
    files: tuple[Path, ...]
    was_done: bool


def execute_sample(
    target: str, options: Mapping[str, Any], output: Path, resume: bool, imported: Sequence[Imported] = ()
) -> Done:
    """Tune, draw what is not drawn yet, and write everything.

    Args:
        target: MODULE:NAME, FILE.py:NAME or a YAML file.
        options: the other entries of ``Settings``.
        imported: code of the user's, which is noted; whether it is another one is told by the target's densities.
    """
    require("matplotlib", "matplotlib", "plots")
    settings: Settings = build(Settings, {"target": target, **options}, file="torchsrk sample")
    given, settings = _resolved(settings)
    posterior, names = _posterior(given, settings, target)
    device = tensor_of(posterior.target).device
    with RunFolder(output, _as_text(settings), resume, device) as folder:
        folder.note_environment(environment(settings.seed, device, imported))
        plan = _planned(posterior, folder, target)
        pieces = _pieces(settings.draws)
        was_done = (output / _SUMMARY).is_file() and all(map(folder.is_done, pieces))

        def draw(count: int, before: Mapping[str, Result]) -> Result:
            after = _joined([*before.values()][-1:])
            with users_code(target):
                run = plan.sample(count, after=after, compile=settings.compile)
            return {name: getattr(run, name) for name in ("trajectory", "state", "step", "statistics")}

        run = _joined([*measured(folder, pieces, draw, _progress()).values()])
        assert run is not None
        return _written(folder, target, posterior, plan, run, names, was_done)


def _as_text(settings: Settings) -> str:
    """YAML, for which no package is asked: JSON's values are YAML's, too."""
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in plain(settings).items())


def _progress() -> bool:
    return sys.stderr.isatty()


# ------------------------------------------------------------------------------------------------------ the target


def _resolved(settings: Settings) -> tuple[Given, Settings]:
    """The target, and the settings as they are kept: with what a YAML file says in place of its name."""
    if not settings.target.endswith((".yaml", ".yml")):
        return target_at(settings.target, settings.dim), settings
    if settings.dim is not None:
        raise TargetError(f"{settings.target}: --dim is for log densities in code: give dim in the file")
    context = Context(settings.seed, torch.device("cpu"), torch.get_default_dtype(), settings.compile, False)
    potential, said = potential_in(Path(settings.target), context)
    return Given(potential), Settings(**{**vars(settings), "target": said})


def _posterior(given: Given, settings: Settings, target: str) -> tuple[DiffusionDistribution, list[str]]:
    """The target as a distribution, and the names of its parameters."""
    with users_code(target):
        posterior = DiffusionDistribution(
            given.target,
            event_shape=given.event_shape,
            support=given.support,
            tolerance=settings.tolerance,
            particles=settings.particles,
            seed=settings.seed,
            compile=settings.compile,
            progress=_progress(),
        )
    names = list(given.names or parameter_names(posterior.event_shape))
    if len(names) != posterior.event_shape.numel():
        raise TargetError(
            f"{target}: it has {posterior.event_shape.numel()} parameters, and the attribute `names` has {len(names)}"
        )
    return posterior, names


def _planned(posterior: DiffusionDistribution, folder: RunFolder, target: str) -> Tuning:
    """The plan, tuned now or before; the target must be the one that it was tuned for."""
    start, was_done = time.perf_counter(), folder.is_done("plan")

    def tuned() -> Result:
        with users_code(target), warnings.catch_warnings():
            # Said in the end, with the summary.
            warnings.filterwarnings("ignore", "draws of this density should not be trusted", RuntimeWarning)
            plan = posterior.tuning
            return {"posterior": posterior.state_dict(), "log_densities": _log_densities(posterior, plan)}

    try:
        kept = folder.remember("plan", tuned)
    except TargetError:
        folder.abandon()
        raise
    if not was_done and not _progress():
        print(f"tuned: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    with users_code(target):
        posterior.load_state_dict(kept["posterior"])
        same = posterior.is_tuned and _are_the_same(_log_densities(posterior, posterior.tuning), kept["log_densities"])
    if not same:
        raise FolderError(
            f"{folder.path} holds a plan for another target: log densities at the same points differ. Give another "
            "--output, or the code and data of before (random data want a seed)"
        )
    return posterior.tuning


def _are_the_same(now: Tensor, seen: Tensor) -> bool:
    rounding = _ROUNDING * torch.finfo(seen.dtype).eps
    return torch.allclose(now, seen, rtol=rounding, atol=rounding, equal_nan=True)


def _log_densities(posterior: DiffusionDistribution, plan: Tuning) -> Tensor:
    with torch.no_grad():
        return posterior.unnormalized_log_prob(posterior.constrain(plan.positions[:_LOOKED_AT])).detach()


# ------------------------------------------------------------------------------------------------------- the draws


def _pieces(draws: int) -> dict[str, int]:
    """Units that are kept one by one, and how many draws each has."""
    size = -(-draws // _MOST_PIECES)
    starts = range(0, draws, size)
    return {f"draws-{start + 1:0{len(str(draws))}d}": min(size, draws - start) for start in starts}


def _joined(parts: list[Result]) -> Run | None:
    """The run that these are the parts of, one after another."""
    if not parts:
        return None
    lengths = [len(part["trajectory"]) for part in parts]
    statistics = {
        name: sum(length * part["statistics"][name] for length, part in zip(lengths, parts, strict=True)) / sum(lengths)
        for name in parts[-1]["statistics"]
    }
    trajectory = torch.cat([part["trajectory"] for part in parts])
    return Run(trajectory[-1], trajectory, parts[-1]["state"], parts[-1]["step"], statistics)


# ----------------------------------------------------------------------------------------------------- what is left


def _written(
    folder: RunFolder,
    target: str,
    posterior: DiffusionDistribution,
    plan: Tuning,
    run: Run,
    names: list[str],
    was_done: bool,
) -> Done:
    from safetensors.torch import save

    assert run.trajectory is not None
    with users_code(target):
        points = posterior.constrain(run.trajectory)
    summary = summarized(run, plan, lambda x: posterior.constrain(x).reshape(*x.shape[:-1], -1), names)
    draws = folder.write("draws.safetensors", save({"draws": points.cpu().contiguous()}))
    plan_file = folder.path / "plan.safetensors"
    save_checkpoint(plan_file, plan.state_dict())
    table = folder.write_table("summary", summary.rows)
    figure = folder.write_figure("posterior", summary.draw)
    verdict = "Nothing speaks against these draws." if summary.trusted else "These draws should NOT be trusted as is."
    lines = [f"# {target}", "", f"{points.shape[0]} draws of each of {points.shape[1]} particles. {verdict}", ""]
    lines += [*as_markdown(summary.rows, most=100), "", "```", summary.diagnosis, "```", ""]
    lines += [f"![{figure.stem}]({figure.name})", "", f"[{table.name}]({table.name}), [{draws.name}]({draws.name})"]
    text = folder.write(_SUMMARY, ("\n".join(lines) + "\n").encode())
    return Done(summary, (text, table, figure, draws, plan_file), was_done)
