"""Experiments: one module a measurement; a config in, tables, figures and findings out."""

from __future__ import annotations

from importlib import import_module

from ..extras import require
from .base import Conclusion, Context, Experiment, Finding
from .named_potentials import register_potential
from .scheme_name import SchemeName

# Config files name their experiment; a name that is not here is refused, so that no file chooses what is imported.
NAMES = (
    *(
        "asymptotic",
        "invariant",
        "rates",
        "romberg",
        "schemes",
        "stability",
        "strong_error",
        "theory",
        "traces",
        "w2_bias",
    ),
    "wall_time",
)
_REGISTERED: dict[str, Experiment] = {}


def register_experiment(name: str, experiment: Experiment) -> None:
    """Let config files name an experiment of the user's own.

    ``experiment`` is a module, or any object, with ``Settings`` (a dataclass), ``plan``, ``measure`` and ``conclude``;
    ``torchsrk run CONFIG --import MODULE`` imports the module that calls this.
    """
    missing = [part for part in ("Settings", "plan", "measure", "conclude") if not hasattr(experiment, part)]
    if missing:
        raise TypeError(f"the experiment {name!r} has no {', '.join(missing)}: see torchsrk.experiments.Experiment")
    if name in NAMES:
        raise ValueError(f"{name!r} is the name of one of torchsrk's own experiments: choose another")
    _REGISTERED[name] = experiment


def experiment_names() -> tuple[str, ...]:
    """The names that a config can give: those of torchsrk, and those that were registered."""
    return (*NAMES, *_REGISTERED)


def experiment_named(name: str) -> Experiment:
    """The experiment of this name.

    Args:
        name: one of ``experiment_names()``.
    """
    assert name in experiment_names()
    if name in _REGISTERED:
        return _REGISTERED[name]
    require("scipy", "SciPy", "experiments")
    module: Experiment = import_module(f".{name}", __name__)
    return module


__all__ = [
    "NAMES",
    "Conclusion",
    "Context",
    "Experiment",
    "Finding",
    "SchemeName",
    "experiment_named",
    "experiment_names",
    "register_experiment",
    "register_potential",
]
