"""Experiments: one module a measurement; a config in, tables, figures and findings out."""

from __future__ import annotations

from importlib import import_module

from .base import Experiment

# Config files name their experiment; a name that is not here is refused, so that no file chooses what is imported.
NAMES = ("asymptotic", "rates", "schemes", "stability", "strong_error", "traces", "w2_bias", "wall_time")


def experiment_named(name: str) -> Experiment:
    """The module of this name."""
    assert name in NAMES
    module: Experiment = import_module(f".{name}", __name__)
    return module


__all__ = ["NAMES", "Experiment", "experiment_named"]
