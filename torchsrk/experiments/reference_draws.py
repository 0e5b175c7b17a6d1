"""Draws of a posterior that has no exact ones: a fine chain, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from ..compiled.build import cache_folder
from ..compiled.trace import CannotCompile
from ..potentials import LogisticRegression
from ..sampling import sample
from ..sde import Langevin
from .base import Context
from .config import ConfigError, Count, Positive

_SEED = 7  # of a run's seeds, the one for its reference


@dataclass(frozen=True)
class Reference:
    """Independent particles of a scheme, all from 0; the paper takes "em" with steps of 0.001.

    SRK-LD's own error is far below that at a hundred times the step: on a Gaussian of the regression's curvature its
    variance at step 0.1 is off by 1.5 parts in 10,000.
    """

    particles: Count = 50_000
    step_size: Positive = 0.1
    time: Positive = 40.0
    scheme: Literal["srk-ld", "em"] = "srk-ld"


def reference_draws(target: LogisticRegression, reference: Reference, context: Context) -> Tensor:
    """(particles, dim) draws, on the context's device and in its dtype, from the user's cache if they are there."""
    key = _key(target, reference, context)
    file = _folder() / f"draws-{key[:32]}.safetensors"
    draws = _kept(file, key)
    if draws is None:
        draws = _simulated(target, reference, context).cpu()
        save_checkpoint(file, {"key": key, "draws": draws})
    return draws.to(context.device)


def _simulated(target: LogisticRegression, reference: Reference, context: Context) -> Tensor:
    return sample(
        Langevin(target),
        torch.zeros(reference.particles, target.dim, dtype=context.dtype, device=context.device),
        integrator=reference.scheme,
        step_size=reference.step_size,
        num_steps=math.ceil(reference.time / reference.step_size),
        seed=derive_seed(context.seed, _SEED),
        compile=context.compile,
        progress=context.progress,
    ).final


def _key(target: LogisticRegression, reference: Reference, context: Context) -> str:
    """A hash of all that the draws depend on."""
    parts: tuple[Any, ...] = (
        metadata.version("torchsrk"),
        (target.alpha, tuple(target.features.shape), _bytes(target.features), _bytes(target.labels)),
        (reference.particles, reference.step_size, reference.time, reference.scheme),
        (context.seed, str(context.dtype), context.device.type, context.compile),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _kept(file: Path, key: str) -> Tensor | None:
    """The draws in a file, or None if it is not there, not whole or not theirs."""
    try:
        saved = load_checkpoint(file)
    except (OSError, CheckpointError):
        return None
    draws = saved.get("draws")
    return draws if isinstance(draws, Tensor) and saved.get("key") == key else None


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def _folder() -> Path:
    try:
        return cache_folder()
    except CannotCompile as error:
        raise ConfigError(str(error)) from None
