"""Chains that go on from where they are, and never see the same noise twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..blocks import Blocks
from ..brownian import LevyArea
from ..brownian.noise import check_seed
from ..dtensors import is_sharded
from ..integrators import Integrator, integrator_named
from ..integrators.wrapped import Wrapped
from ..sde import SDE, BaseSDE, ItoDiffusion, Langevin, UnderdampedLangevin, as_sde
from .beginnings import are_positions
from .checks import Compile, check_integer, check_levy_area, check_problem, check_step_size, check_way
from .dynamics import Dynamics
from .failures import is_finite
from .plans import Pace
from .runs import Callback, Run, runner_for
from .signs import Watch
from .surroundings import full_precision

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

    ``step_size`` may be assigned to, and is that of the next steps then; ``restart`` puts some particles elsewhere. All
    else that a chain was made with stays.

    Args:
        sde, x0, integrator, step_size: as for ``sample``.
        seed: of all noise, from now on.
        state: with which to begin, of an earlier run of the scheme whose positions x0 are, up to the noise by which the
            scheme reports them.
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
        check_levy_area(levy_area)
        sde, scheme = as_sde(sde), integrator_named(integrator)
        if not is_sharded(x0):  # whose ranks look each at its own
            check_problem(sde, x0, scheme, step_size)
        self._sde, self._scheme, self._step_size = sde, scheme, float(step_size)
        self._seed, self._first_particle, self._step = seed, first_particle, 0
        self._options: dict[str, Any] = {"levy_area": levy_area, "check_every": check_every}
        self._options |= {"block_size": block_size, "compile": compile}
        self._x, self._state = x0.detach().clone(), None
        if state is not None:
            self._state = self._checked(state, self._x, self._dynamics(self._x), 0, same_noise=False)
            self._x = self._reported()
        self._watch = Watch.of(self._x)

    def __setattr__(self, name: str, value: Any) -> None:
        # What is not used would be taken without a word.
        if name != "step_size" and not name.startswith("_"):
            raise AttributeError(
                f"a chain's {name} can't be assigned to; its step_size can, and restart(rows, x) puts particles "
                "elsewhere. For anything else make a chain from its positions, x0=chain.x, with another seed"
            )
        super().__setattr__(name, value)

    @property
    def sde(self) -> BaseSDE:
        """What it was made with."""
        return self._sde

    @property
    def x(self) -> Tensor:
        """Where the particles are, (..., dim): a copy, so that nothing done to it reaches the chain."""
        return self._x.clone()

    @property
    def step_size(self) -> float:
        """Of the next steps. Another may be assigned, as an annealed one is: no noise repeats by it."""
        return self._step_size

    @step_size.setter
    def step_size(self, step_size: float) -> None:
        check_step_size(step_size)
        self._check_another_length(float(step_size), self._step, self._state)
        self._step_size = float(step_size)
        self._x = self._reported()

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
            sde=self._sde,
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

    def restart(self, rows: Tensor | slice | Sequence[int], x: Tensor) -> None:
        """Put the particles in some rows at x, as in a batch that begins there; the others go on to the same bits.

        Velocities, and whatever else the scheme keeps, begin anew, with noise that nothing else uses. ("lm" reports
        positions by the next step's noise, so that ``chain.x`` is around x then.)

        Args:
            rows: of the chain's x: their numbers, a slice, or a mask of one bool a row.
            x: (rows, ..., dim), where they go.
        """
        if is_sharded(self._x):
            raise TypeError(
                "restart is for particles that are all here, and this chain's are sharded: make a chain from the new "
                "positions with another seed"
            )
        numbers = _row_numbers(rows, self._x)
        shape = (len(numbers), *self._x.shape[1:])
        if not isinstance(x, Tensor) or x.shape != shape or x.dtype != self._x.dtype:
            given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"these rows have positions {self._x.dtype} {shape}; got {given}")
        if not is_finite(x):
            raise ValueError(f"x has {int((~x.isfinite()).sum())} entries that are infinite or NaN")
        moved = self._x.clone()
        moved[numbers] = x.detach().to(moved.device)
        if self._state is not None and len(numbers):
            state = self._state.clone()
            with full_precision(moved):
                state[numbers] = self._dynamics(moved).restarted(moved, numbers, self._step)
            self._state = state
            if self._scheme.position_needs:
                moved[numbers] = self._reported()[numbers]
        self._x = moved

    def state_dict(self) -> dict[str, Any]:
        """What the next steps depend on beside the SDE and what the chain was made with: tensors and numbers. The
        scheme and the step size, as it is now, are named in it."""
        kept = {"x": self.x, "state": None if self._state is None else self._state.clone()}
        made_with = {"scheme": _class_of(self._scheme), "step_size": self._step_size}
        return {**kept, "step": self._step, "seed": self._seed, "first_particle": self._first_particle, **made_with}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the chain would have whose state this is, with its particles, steps and seed.

        The state of another scheme is refused. The step size stays this chain's own, whatever ``state["step_size"]``
        says: a chain may go on with shorter steps. ``chain.step_size = state["step_size"]`` takes that over, before.
        """
        if not isinstance(state, Mapping) or set(state) != _KEYS:
            given = str(sorted(map(str, state))) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"expected the {', '.join(sorted(_KEYS))} that state_dict gives; got {given}")
        if state["scheme"] != _class_of(self._scheme):
            raise ValueError(
                f"this chain's scheme is {_class_of(self._scheme)}, and the state is one of {state['scheme']}: make "
                "the chain with that, or a chain that begins at its positions, x0=state['x'], with another seed"
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
                "positions: take all of a state_dict, or make a chain that begins at its positions, x0=state['x'], "
                "with another seed"
            )
        self._check_another_length(float(state["step_size"]), state["step"], inner)
        if inner is not None:
            made_by = {"seed": state["seed"], "first_particle": state["first_particle"]}
            reported_by = replace(self._dynamics(x), pace=Pace(float(state["step_size"])), **made_by)
            inner = self._checked(inner, x, reported_by, state["step"], same_noise=True)
        self._seed, self._step, self._first_particle = state["seed"], state["step"], state["first_particle"]
        self._x, self._state = x, inner
        self._x = self._reported()
        self._watch = Watch.of(x)

    def watched_by(self, watch: Watch) -> Chain:
        """This chain, as a part of a longer one: how far its energies have fallen is seen from where that began."""
        self._watch = watch
        return self

    def _dynamics(self, x: Tensor) -> Dynamics:
        pace, levy_area = Pace(self._step_size), self._options["levy_area"]
        brownian = 0 if is_sharded(x) else self._sde.brownian_dim(x)
        return Dynamics(self._sde, self._scheme, pace, self._seed, self._first_particle, levy_area, brownian)

    def _blocks(self, x: Tensor, dynamics: Dynamics) -> Blocks:
        return Blocks(x, self._options["block_size"], divisible=not dynamics.is_stateful)

    def _checked(self, state: Tensor, x: Tensor, dynamics: Dynamics, step: int, *, same_noise: bool) -> Tensor:
        """A copy of a state of particles at x, if the scheme can go on from it."""
        if is_sharded(x) and isinstance(state, Tensor):  # whose ranks look each at its own
            return state.detach().clone()
        state = dynamics.given(state.to(x.device) if isinstance(state, Tensor) else state, x)
        blocks = self._blocks(x, dynamics)
        if not are_positions(dynamics, blocks, state, step, x, same_noise=same_noise):
            raise ValueError(
                "the state's particles are elsewhere than at x: a state goes with the positions that came with it. "
                "From other positions a chain begins without a state, and with another seed"
            )
        return state

    def _reported(self) -> Tensor:
        """The positions, where the scheme reports them by the noise of the next step: by that which will be drawn."""
        if self._state is None or not self._scheme.position_needs or is_sharded(self._x):
            return self._x
        dynamics = self._dynamics(self._x)
        return dynamics.positions(self._blocks(self._x, dynamics), self._state, self._step)

    def _check_another_length(self, other: float, step: int, state: Tensor | None) -> None:
        """Steps of one chain may have different lengths, unless the scheme or the time stands on one."""
        if step == 0 or other == self._step_size:
            return
        if self._scheme.equal_steps and state is not None:
            raise ValueError(
                f"{_class_of(self._scheme)} makes steps of one length, and step_size would be {other:g} in one place "
                f"and {self._step_size:g} in another: make a chain from the positions with another seed, or take a "
                "scheme such as 'ubu'"
            )
        if _may_depend_on_time(self._sde):
            raise ValueError(
                "this SDE's time is the number of the step times its length, and would jump where step_size is "
                f"{other:g} in one place and {self._step_size:g} in another: give sample the lengths of all steps, "
                "step_sizes="
            )

    def _is_more_than_positions(self, x: Tensor) -> bool:
        """Whether states hold a velocity, or are not what is reported of them."""
        if is_sharded(x):
            return False
        row = x[:1] if x.ndim > 1 else x
        return bool(self._scheme.position_needs) or self._sde.start(row, torch.zeros_like).shape != row.shape

    def __repr__(self) -> str:
        particles = " × ".join(map(str, self._x.shape[:-1])) or "1"
        return (
            f"{type(self).__name__}({type(self._sde).__name__}, {self._scheme}, step_size={self._step_size:g}, "
            f"{particles} particles after {self._step} steps, seed={self._seed})"
        )


def _class_of(scheme: Integrator) -> str:
    """By what states are told apart: of one scheme or of another."""
    own = type(scheme).__name__
    return f"{own}({_class_of(scheme.scheme)})" if isinstance(scheme, Wrapped) else own


def _row_numbers(rows: Tensor | slice | Sequence[int], x: Tensor) -> Tensor:
    """The numbers of rows of x, each once."""
    if x.ndim < 2:
        raise ValueError("this chain is a single particle, without rows: make one from x0 (1, dim)")
    try:
        index = rows if isinstance(rows, (Tensor, slice)) or not len(rows) else torch.as_tensor(rows)
        numbers = torch.arange(len(x), device=x.device)[index.to(x.device) if isinstance(index, Tensor) else index]
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"rows are numbers below {len(x)}, a slice or a mask of {len(x)} bools: {error}") from error
    if numbers.ndim != 1 or len(numbers.unique()) < len(numbers):
        raise ValueError(f"rows are numbers below {len(x)}, each once, a slice or a mask of {len(x)} bools; got {rows}")
    return numbers


def _may_depend_on_time(sde: BaseSDE) -> bool:
    if isinstance(sde, SDE):
        return sde.time_dependent
    return not isinstance(sde, (Langevin, UnderdampedLangevin, ItoDiffusion))
