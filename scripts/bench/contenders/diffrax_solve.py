"""diffrax: one solve of the whole batch with its quickest Brownian motion; Euler, and SRA1 for SRK-LD's order."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import lineax
from jax import Array

from cases import EM, Case, Run
from jax_targets import gradient, start_of


def build(case: Case) -> Run:
    grad, h = gradient(case), case.step_size
    solver = diffrax.Euler() if case.scheme == EM else diffrax.SRA1()
    area = diffrax.BrownianIncrement if case.scheme == EM else diffrax.SpaceTimeLevyArea
    drift = diffrax.ODETerm(lambda t, x, args: -grad(x))

    def sigma(t: Array, x: Array, args: None) -> lineax.DiagonalLinearOperator:
        return lineax.DiagonalLinearOperator(jnp.full(x.shape, math.sqrt(2), x.dtype))

    @partial(jax.jit, static_argnums=2, donate_argnums=0)
    def solve(x: Array, key: Array, steps: int) -> Array:
        path = diffrax.UnsafeBrownianPath(jax.ShapeDtypeStruct(x.shape, x.dtype), key, levy_area=area)
        solution = diffrax.diffeqsolve(
            diffrax.MultiTerm(drift, diffrax.ControlTerm(sigma, path)),
            solver,
            t0=0.0,
            t1=steps * h,
            dt0=h,
            y0=x,
            saveat=diffrax.SaveAt(t1=True),
            adjoint=diffrax.ForwardMode(),  # the loop without the backward pass's bookkeeping
            max_steps=None,
            throw=False,
        )
        return solution.ys[0]

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Array:
        return solve(start_of(case, start), jax.random.key(seed), steps).block_until_ready()

    return run
