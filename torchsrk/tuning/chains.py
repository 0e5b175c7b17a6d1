"""Chains that tune themselves, and go on from draw to draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Size, Tensor

from ..brownian.noise import derive_seed
from ..potentials import Potential
from ..sampling import Run, integrate, sample
from ..transforms import is_transformed
from .plan import Tuning
from .tune import tune

_FORGETTING = 5  # lengths that a differentiable chain runs, so that its start tells nothing of the parameters


class TunedChains:
    """An ensemble of chains of a potential, tuned at the first draw and whenever the density has changed.

    Args:
        start: a seed to starting points (particles, *batch_shape, dim), or None where tuning chooses them.
        batch_shape: that of a potential which is a batch of targets.
        options: for ``tune``, but whether it shows its progress, which is said at every call.
    """

    def __init__(
        self, potential: Potential, start: Callable[[int], Tensor | None], batch_shape: Size, **options: Any
    ) -> None:
        self.potential, self.start, self.batch_shape, self.options = potential, start, batch_shape, options
        self.tuning: Tuning | None = None
        self.states: Tensor | None = None

    def tuned(self, seed: int, *, progress: bool = False) -> Tuning:
        """The plan, made now if there is none or if the density is another one."""
        if self.tuning is None:
            self._tune(seed, self.start(seed), progress)
        elif not self.is_current:
            assert self.states is not None
            dim = self.tuning.potential.loc.shape[-1]
            self._tune(seed, self.tuning.potential.outward(self.states[..., :dim]), progress)
        assert self.tuning is not None
        return self.tuning

    @property
    def is_current(self) -> bool:
        """Whether there is a plan, and the density is the one that it was made for."""
        return self.tuning is not None and self.tuning.is_current

    def draw(self, count: int, seed: int, *, compile: bool | Literal["auto"], progress: bool) -> Tensor:
        """So many draws, (count, *batch_shape, dim)."""
        plan = self.tuned(derive_seed(seed, 0), progress=progress)
        assert self.states is not None
        chains = min(count, len(self.states))
        state, dim = self.states[:chains].contiguous(), plan.potential.loc.shape[-1]
        rounds = -(-count // chains)
        run = sample(
            plan.sde,
            state[..., :dim].contiguous(),
            state=state,
            integrator=plan.integrator,
            step_size=plan.step_size,
            num_steps=rounds * plan.length,
            thin=plan.length,
            seed=derive_seed(seed, 1),
            compile=compile,
            progress=progress,
        )
        assert run.trajectory is not None
        self.states = torch.cat((run.state, self.states[chains:]))
        return plan.potential.outward(run.trajectory.flatten(0, 1)[:count])

    def look(self, draws: int, seed: int, *, progress: bool) -> tuple[Tuning, Run]:
        """So many draws of every chain from where it is, which it does not go on from."""
        plan = self.tuned(seed, progress=progress)
        assert self.states is not None
        where = Run(plan.positions, None, self.states, plan.step)
        return plan, plan.sample(draws, after=where)

    def rdraw(self, count: int, seed: int, *, progress: bool) -> Tensor:
        """Draws (count, *batch_shape, dim), at most one a chain, whose gradients reach the density's parameters."""
        plan = self.tuned(derive_seed(seed, 0), progress=progress)
        assert self.states is not None
        if count > len(self.states):
            raise ValueError(
                f"rsample draws once of every chain, and there are {len(self.states)}: give particles={count} or more"
            )
        steps, dim = _FORGETTING * plan.length, plan.potential.loc.shape[-1]
        start = self.states[:count, ..., :dim].contiguous()
        times = [0.0, steps * plan.step_size]
        options: dict[str, Any] = {"integrator": plan.integrator, "step_size": plan.step_size, "progress": progress}
        options |= {"seed": derive_seed(seed, 1), "recompute": not is_transformed()}
        return plan.potential.outward(integrate(plan.sde, start, times, **options)[-1])

    def shared(self) -> TunedChains:
        """The same plan with chains that go on by themselves."""
        twin = TunedChains(self.potential, self.start, self.batch_shape, **self.options)
        twin.tuning = self.tuning
        twin.states = None if self.states is None else self.states.clone()
        return twin

    def state_dict(self) -> dict[str, Any] | None:
        """The plan and where its chains are; None before there is one."""
        if self.tuning is None:
            return None
        return {"plan": self.tuning.state_dict(), "states": self.states}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Go on as the chains would have whose state this is."""
        if state is None:
            self.tuning = self.states = None
            return
        if not isinstance(state, dict) or not {"plan", "states"} <= set(state):
            raise ValueError("expected the plan and states that state_dict gives of tuned chains")
        dim, loc = self.potential.dim, state["plan"]["loc"]
        if loc.shape != (*self.batch_shape, dim):
            batch = f" and batch shape {tuple(self.batch_shape)}" if self.batch_shape else ""
            raise ValueError(f"this density has dimension {dim}{batch}; the plan is one for {tuple(loc.shape)}")
        # Another density is no error here: it is tuned anew at the next draw, as one that has been trained is.
        scheme = self.options.get("integrator", "baoab")
        self.tuning = Tuning.restored_unchecked(self.potential, state["plan"], scheme)
        self.states = state["states"]

    def _tune(self, seed: int, start: Tensor | None, progress: bool) -> None:
        options = {**self.options, "batch_shape": self.batch_shape, "progress": progress}
        self.tuning = tune(self.potential, seed=seed, start=start, **options)
        self.states = self.tuning.state
