"""Contenders, one library a file. Each file has ``build(case, **options)``, which gives a ``Run``."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from cases import Build

TORCHSRK, TORCHSRK_EAGER = "torchsrk compiled", "torchsrk eager"
BY_HAND, BY_TORCH_COMPILE = "torch by hand", "torch.compile"
JAX, JAX_RBG, DIFFRAX, BLACKJAX = "jax scan", "jax scan, rbg", "diffrax", "blackjax"
TORCHSDE, TORCHEBM, POSTERIORS = "torchsde", "torchebm", "posteriors"
NOISE_KERNEL, SRK_ID, SRK_ID_EAGER = "noise kernel", "srk-id compiled", "srk-id eager"

_FILES: dict[str, tuple[str, dict[str, object]]] = {
    TORCHSRK: ("torchsrk_sample", {"compile": True}),
    TORCHSRK_EAGER: ("torchsrk_sample", {}),
    BY_HAND: ("torch_by_hand", {}),
    BY_TORCH_COMPILE: ("torch_compiled", {}),
    JAX: ("jax_scan", {"prng": "threefry2x32"}),
    JAX_RBG: ("jax_scan", {"prng": "rbg"}),
    DIFFRAX: ("diffrax_solve", {}),
    BLACKJAX: ("blackjax_sgld", {}),
    TORCHSDE: ("torchsde_sdeint", {}),
    TORCHEBM: ("torchebm_langevin", {}),
    POSTERIORS: ("posteriors_sgld", {}),
    NOISE_KERNEL: ("noise_kernel", {}),
    SRK_ID: ("srk_id", {"compile": True}),
    SRK_ID_EAGER: ("srk_id", {}),
}


def builder(name: str) -> Build:
    """The contender's ``build``. Imports its library, so only in the process that runs it."""
    file, options = _FILES[name]
    return partial(import_module(f"contenders.{file}").build, **options)
