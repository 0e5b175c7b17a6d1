"""Chains that go on from where they are, and never see the same noise twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..brownian import LevyArea
from ..brownian.noise import check_seed
from ..dtensors import is_sharded
from ..integrators import Integrator, integrator_named
from ..integrators.wrapped import Wrapped
from ..sde import BaseSDE, as_sde
from ..transforms import below_transforms
from .checks import Compile, check_integer, check_problem, check_step_size, check_way
from .dynamics import Dynamics
from .failures import is_finite
from .plans import Pace
from .runs import Callback, Run, runner_for
from .signs import Watch

_KEYS = {"x", "state", "step", "seed", "first_particle", "scheme", "step_size"}


class Chain:
    """Particles of an SDE between calls: ``advance`` takes them on, however often, as one long run would.

    ``sample`` starts anew at every call, and repeats its noise when it is called again with the same seed; a chain
    counts its steps, so that no two of them share noise. The SDE's parameters may change between calls, as an energy
    model's do in training::

        chain = Chain(Langevin(energy), x0, integrator="srk-ld", step_size=0.01, seed=0)
        for batch in data:
            draws = chain.advance(10).final
            loss = energy(batch).mean() - energy(draws).mean()
            ...

    A copy (``copy.deepcopy``), and a chain that has loaded another's ``state_dict``, go on as the other would have:
    with the same noise. For independent chains take another seed. The number of minibatches that a potential has drawn
    is in ``sde.state_dict()``: save it beside the chain's.

    Args:
        sde, x0, integrator, step_size: as for ``sample``.
        seed: of all noise, from now on.
        state: with which to begin, of an earlier run of the scheme whose positions x0 are.
        levy_area, first_particle, check_every, block_size, compile: as for ``sample``, for every step.
    """

    def __init__(
        self,
        sde: BaseSDE,
        x0: Tensor,
        *,
        integrator: Integrator | str,
        step_size: float,
        seed: int,
        state: Tensor | None = None,
        levy_area: LevyArea | None = None,
        first_particle: int = 0,
        check_every: int | None = None,
        block_size: int | None = None,
        compile: Compile = False,
    ) -> None:
        check_seed(seed)
        check_integer("first_particle", first_particle, 0)
        check_way(check_every, block_size, compile)
        sde, scheme = as_sde(sde), integrator_named(integrator)
        if not is_sharded(x0):  # whose ranks look each at its own
            check_problem(sde, x0, scheme, step_size)
        self.sde, self._scheme, self._step_size = sde, scheme, float(step_size)
        self._seed, self._first_particle, self._step = seed, first_particle, 0
        self._x = x0.detach().clone()
        self._state = None if state is None else self._checked(state, self._x)
        self._options: dict[str, Any] = {"levy_area": levy_area, "check_every": check_every}
        self._options |= {"block_size": block_size, "compile": compile}
        self._watch = Watch.of(self._x)

    @property
    def x(self) -> Tensor:
        """Where the particles are, (..., dim): a copy, so that nothing done to it reaches the chain."""
        return self._x.clone()

    @property
    def step(self) -> int:
        """How many steps were made."""
        return self._step

    @property
    def seed(self) -> int:
        """Of the noise."""
        return self._seed

    def advance(
        self,
        num_steps: int,
        *,
        burn_in: int = 0,
        thin: int | None = None,
        callbacks: Iterable[Callback] = (),
        progress: bool = False,
    ) -> Run:
        """Make ``burn_in + num_steps`` steps more; what comes is what ``sample`` gives.

        After an error, a NonFiniteStateError say, the chain is where it was before the call.
        """
        run = runner_for(self._x)(
            watch=self._watch,
            sde=self.sde,
            x0=self._x,
            state=self._state,
            integrator=self._scheme,
            step_size=self._step_size,
            step_sizes=None,
            num_steps=num_steps,
            burn_in=burn_in,
            thin=thin,
            seed=self._seed,
            first_step=self._step,
            first_particle=self._first_particle,
            callbacks=callbacks,
            progress=progress,
            **self._options,
        )
        self._x, self._state, self._step = run.final, run.state, run.step
        final = run.final.clone()
        return replace(run, final=final, state=final if run.state is run.final else run.state.clone())

    def state_dict(self) -> dict[str, Any]:
        """What the next steps depend on beside the SDE and what the chain was made with: tensors and numbers. The
        scheme and the step size are named in it."""
        kept = {"x": self.x, "state": None if self._state is None else self._state.clone()}
        made_with = {"scheme": _class_of(self._scheme), "step_size": self._step_size}
        return {**kept, "step": self._step, "seed": self._seed, "first_particle": self._first_particle, **made_with}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the chain would have whose state this is, with its particles, steps and seed.

        The state of another scheme is refused. The step size stays the one that this chain was made with, whatever
        ``state["step_size"]`` says: a chain may go on with shorter steps.
        """
        if not isinstance(state, Mapping) or set(state) != _KEYS:
            given = str(sorted(map(str, state))) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"expected the {', '.join(sorted(_KEYS))} that state_dict gives; got {given}")
        if state["scheme"] != _class_of(self._scheme):
            raise ValueError(
                f"this chain's scheme is {_class_of(self._scheme)}, and the state is one of {state['scheme']}: make "
                "the chain with that, or a chain that begins at its positions, x0=state['x']"
            )
        check_step_size(state["step_size"])
        check_seed(state["seed"])
        check_integer("step", state["step"], 0)
        check_integer("first_particle", state["first_particle"], 0)
        x, inner = state["x"], state["state"]
        if not isinstance(x, Tensor) or x.shape != self._x.shape or x.dtype != self._x.dtype:
            given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"this chain has positions {self._x.dtype} {tuple(self._x.shape)}; got {given}")
        x = x.detach().to(self._x.device, copy=True)
        if not is_sharded(x) and not is_finite(x):
            raise ValueError(f"x has {int((~x.isfinite()).sum())} entries that are infinite or NaN")
        if inner is None and state["step"] > 0 and self._is_more_than_positions(x):
            raise ValueError(
                f"state is None after {state['step']} steps, and {_class_of(self._scheme)} goes on from more than "
                "positions: take all of a state_dict, or make a chain that begins at its positions, x0=state['x']"
            )
        inner = None if inner is None else self._checked(inner, x)
        self._seed, self._step, self._first_particle = state["seed"], state["step"], state["first_particle"]
        self._x, self._state = x, inner
        self._watch = Watch.of(x)

    def watched_by(self, watch: Watch) -> Chain:
        """This chain, as a part of a longer one: how far its energies have fallen is seen from where that began."""
        self._watch = watch
        return self

    def _checked(self, state: Tensor, x: Tensor) -> Tensor:
        """A copy of a state of particles at x, if the scheme can go on from it."""
        if is_sharded(x) and isinstance(state, Tensor):  # whose ranks look each at its own
            return state.detach().clone()
        state = state.to(x.device) if isinstance(state, Tensor) else state
        state = Dynamics(self.sde, self._scheme, Pace(self._step_size), 0, 0, None, 0).given(state, x)
        if not self._scheme.position_needs:
            with torch.no_grad():
                where = below_transforms(self._scheme.position(self.sde, 0.0, state, None))
            if not torch.allclose(where, below_transforms(x), rtol=1e-3, atol=1e-6):
                raise ValueError(
                    "the state's particles are elsewhere than at x: a state goes with the positions that came with it. "
                    "From other positions a chain begins without a state"
                )
        return state

    def _is_more_than_positions(self, x: Tensor) -> bool:
        """Whether states hold a velocity, or are not what is reported of them."""
        if is_sharded(x):
            return False
        row = x[:1] if x.ndim > 1 else x
        return bool(self._scheme.position_needs) or self.sde.start(row, torch.zeros_like).shape != row.shape

    def __repr__(self) -> str:
        particles = " × ".join(map(str, self._x.shape[:-1])) or "1"
        return (
            f"{type(self).__name__}({type(self.sde).__name__}, {self._scheme}, step_size={self._step_size:g}, "
            f"{particles} particles after {self._step} steps, seed={self._seed})"
        )


def _class_of(scheme: Integrator) -> str:
    """By what states are told apart: of one scheme or of another."""
    own = type(scheme).__name__
    return f"{own}({_class_of(scheme.scheme)})" if isinstance(scheme, Wrapped) else own
