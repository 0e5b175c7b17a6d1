"""Random programs: an SDE as a user writes it, where it starts and how it is run. A program is a seed."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from .functions import IMPORTS, Function, draw_function, idiom_of, number_of_idioms

_STARTS = {
    "zeros": "x0[::2] = 0.0",
    "integers": "x0 = x0.round()",
    "halves": "x0 = (2 * x0).round() / 2",
    "tiny": "x0[::2] = 1e-30",
    "large": "x0[0] = 1e4",
    "equal coordinates": "x0[:] = x0[:, :1].clone()",
    "equal particles": "x0[:] = x0[:1].clone()",
}
_LARGEST_SLOPE = 1e3
_ATTEMPTS = 20


@dataclass(frozen=True)
class Program:
    """Source text that assigns ``sde``, ``x0`` and ``options``, and what it was made of."""

    seed: int
    text: str
    dtype: str
    idioms: tuple[tuple[str, int], ...]

    def build(self) -> dict[str, Any]:
        """Run the text. It sets the default dtype, which is the caller's to restore."""
        namespace: dict[str, Any] = {"__name__": "program"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(self.text, f"<program {self.seed}>", "exec"), namespace)
        return namespace


@dataclass(frozen=True)
class _Plan:
    """What is chosen before any function is drawn."""

    dtype: str
    dim: int
    particles: int
    noise: str  # or "energy"
    scheme: str
    timed: bool

    @property
    def many_stages(self) -> bool:
        """Whether the diffusion meets states with a further dimension, of SRK-ID's stages."""
        return self.scheme == "srk-id" and self.noise in ("isotropic", "general")


def draw_program(seed: int, dtype: str = "both") -> Program:
    """The program of a seed, in float32, float64 or either."""
    rng = Random(seed)
    before = torch.get_default_dtype()
    try:
        for attempt in itertools.count():
            plan = _draw_plan(rng, dtype)
            torch.set_default_dtype(getattr(torch, plan.dtype[6:]))
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                functions = _draw_functions(rng, plan, idiom_of(seed))
                program = _written(seed, rng, plan, functions)
            # Some idioms seldom run, in a high dimension for example.
            if _is_tame(program) and (idiom_of(seed) in program.idioms or attempt > _ATTEMPTS):
                return program
    finally:
        torch.set_default_dtype(before)


def _draw_plan(rng: Random, dtype: str) -> _Plan:
    either = rng.choice(("float32", "float64"))  # drawn in any case, so that a given dtype changes nothing else
    dtype = either if dtype == "both" else dtype
    noise = rng.choice(("energy",) * 5 + ("additive", "diagonal", "scalar", "isotropic", "general"))
    additive = noise in ("energy", "additive")
    scheme = rng.choice(("em", "em", "srk-ld", "srk-id") if additive else ("em", "srk-id"))
    dim = rng.choice((1, 2, 3, 4, 5) if scheme == "srk-id" and not additive else (1, 2, 3, 3, 5, 8, 20))
    return _Plan(f"torch.{dtype}", dim, rng.choice((1, 3, 5, 17, 1000)), noise, scheme, rng.random() < 0.1)


def _draw_functions(rng: Random, plan: _Plan, wanted: tuple[str, int]) -> dict[str, tuple[Function, str]]:
    """By name: a function and what it returns. The first has the wanted idiom."""

    def draw(constants: int, leading: tuple[int, ...], colon: bool) -> Function:
        return draw_function(
            rng,
            plan.dim,
            plan.dtype,
            leading=leading,
            colon=colon,
            constants=constants,
            statements=rng.choice((1, 1, 1, 1, 2, 2, 3, 6)),
            wanted=None if constants else wanted,
        )

    colon = rng.random() < 0.5
    if plan.noise == "energy":
        mapped = rng.random() < 0.1
        energy = draw(0, () if mapped else (7,), colon and not mapped)
        result = f"0.5 * x.square().sum(-1) + {energy.number()}"
        if rng.random() < 0.02:
            energy.add("raises", rng.randrange(number_of_idioms("raises")), tried=False)
            result += f" + v{len(energy.values)}.sum(-1)"
        return {"one" if mapped else "energy": (energy, result)}
    drift = draw(0, (7,), colon)
    functions = {"drift": (drift, f"{drift.vector()} - x")}
    if plan.noise != "additive":
        leading, colon = ((3, 2), False) if plan.many_stages else ((7,), colon)
        diffusion = draw(max(1, drift.constants), leading, colon)
        functions["diffusion"] = diffusion, _diffusion_result(diffusion, plan, rng)
    return functions


def _diffusion_result(function: Function, plan: _Plan, rng: Random) -> str:
    if plan.noise == "diagonal":
        return f"0.3 + 0.2 * torch.tanh({function.vector()})"
    if plan.noise == "isotropic":
        return f"0.3 + 0.2 * torch.sigmoid({function.number()})"
    if plan.noise == "scalar":
        return f"0.3 + 0.1 * ({function.vector()}).unsqueeze(-1)"
    motions = rng.choice((1, plan.dim, plan.dim + 1))
    eye = f"torch.eye({plan.dim}, {motions}, dtype={plan.dtype})"
    return (
        f"0.3 * {eye} + 0.1 * torch.tanh({function.vector()}).unsqueeze(-1) * torch.ones({motions}, dtype={plan.dtype})"
    )


def _written(seed: int, rng: Random, plan: _Plan, functions: dict[str, tuple[Function, str]]) -> Program:
    t = "t, " if plan.timed and "drift" in functions else ""
    texts = []
    for name, (function, result) in functions.items():
        timed = f"{result} * torch.cos(torch.as_tensor(t, dtype=x.dtype))" if t and name == "drift" else result
        texts.append(function.text(name, f"{t}x", timed))
    if "one" in functions:
        texts.append("def energy(x):\n    return torch.func.vmap(one)(x)\n")
    if plan.noise == "energy":
        sde = "Langevin(FunctionPotential(energy))"
    else:
        diffusion = "0.3" if plan.noise == "additive" else "diffusion"
        sde = f'SDE(drift, {diffusion}, "{plan.noise}"{", time_dependent=True" if t else ""})'
    text = "".join(
        [
            IMPORTS,
            f"torch.set_default_dtype({plan.dtype})\ntorch.manual_seed({seed})\n",
            *texts,
            f"sde = {sde}\n",
            f"x0 = torch.randn({plan.particles}, {plan.dim}, generator=torch.Generator().manual_seed({seed}))\n",
            f"{_STARTS[rng.choice(list(_STARTS))]}\n" if rng.random() < 0.35 else "",
            f'options = dict(integrator="{plan.scheme}", step_size={rng.choice((0.01, 0.02, 0.05))}, '
            f"num_steps={rng.randint(2, 5)}, seed={rng.randrange(100)})\n",
        ]
    )
    idioms = tuple(idiom for function, _ in functions.values() for idiom in function.idioms)
    return Program(seed, text, plan.dtype[6:], idioms)


def _is_tame(program: Program) -> bool:
    """Whether the coefficients are finite and moderate at ordinary points; a program meant to raise may."""
    meant_to_raise = any(group == "raises" for group, _ in program.idioms)
    try:
        namespace = program.build()
        sde, x0 = namespace["sde"], namespace["x0"]
        x = torch.randn(7, x0.shape[-1], generator=torch.Generator().manual_seed(program.seed))
        slope = sde.drift(0.0, x).abs().max()
        sde.sigma(0.0, x)
        if namespace["options"]["integrator"] == "srk-id" and not sde.noise.commutative:  # its stages have a dimension
            sde.sigma(0.0, x.unsqueeze(-2).expand(7, 2, -1))
    except Exception:
        return meant_to_raise
    return bool(slope < _LARGEST_SLOPE) or meant_to_raise
