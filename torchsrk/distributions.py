"""Any density as a torch distribution, sampled by a diffusion."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Size, Tensor, nn
from torch.distributions import Distribution, constraints

from .brownian import Stream, fill_normal, start_normals
from .brownian.noise import check_seed, derive_seed, draw_uniform
from .diagnostics import Diagnosis, diagnose
from .integrators import Integrator, integrator_named
from .potentials import Potential
from .potentials.angles import is_angle, wrapped
from .potentials.function import Function, Negative
from .potentials.precision import check_precision
from .potentials.refusals import told_of_support
from .potentials.unconstrained import Constrained
from .sampling import Chain, NonFiniteStateError, Run, check_step_size, integrate
from .sampling.signs import Watch, add_hint_of_sign
from .starts import drawn_starts, given_starts, spread_over, with_more_dimensions
from .targets import (
    Target,
    checked_shape,
    described,
    diffusion_for,
    has_corner,
    own_tensor,
    potential_of,
    target_given,
    tensor_wanted,
)
from .transforms import is_transformed, outside_transforms
from .tuning import Tuning
from .tuning.chains import TunedChains

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_LOOKED_AT = 10  # draws of every chain, for a diagnosis


class DiffusionDistribution(Distribution):
    """What a Langevin diffusion has become: the target's law, up to an error that falls with the step size and with the
    number of steps.

    Without these numbers the first draw finds out how to sample (see ``torchsrk.tuning.tune``): an ensemble of
    ``particles`` chains learns coordinates, a step size whose bias is below the ``tolerance`` and how many steps lie
    between draws, and warns if its draws should not be trusted; ``tuning`` and ``diagnose()`` tell what was found.
    Later draws go on from its chains, which are tuned again when the target's parameters have changed.

    With ``step_size`` and ``num_steps`` every draw is a particle of its own, with its own start and noise, unless
    ``chain_length`` says otherwise. A target
    on a constrained space is sampled in an unconstrained one, through ``torch.distributions.biject_to``. Every draw is
    in the support, strictly inside where that is an interval; angles (``VonMises``) are in (-π, π].

    ``copy.deepcopy`` and ``pickle`` give the same distribution at the same place, which makes the same draws from there
    on; ``expand`` gives one with draws of its own.

    Args:
        target: a log density, up to a constant, as a callable from points (..., *event_shape) to (...); a Potential,
            which is a negative log density; or a torch distribution.
        log_density, energy: in the place of ``target``, a callable with its sign said: log p or -log p.
        step_size, num_steps: of the diffusion, in unconstrained space: both, or neither.
        integrator: by default "baoab" for what is tuned, and "srk-ld" otherwise. A scheme for underdamped diffusions,
            such as "baoab", runs one, from velocities of their own law.
        tolerance: the bias that tuning allows, in standard deviations.
        particles: of the ensemble that is tuned.
        friction: of an underdamped diffusion that is not tuned.
        event_shape: the shape of a point, for a callable or a Potential of no fixed dimension.
        batch_shape: for a callable or a Potential with batched parameters: it is given points
            (..., *batch_shape, *event_shape), and all its targets are sampled in one go.
        support: of a callable or a Potential, as a constraint; by default all of ℝⁿ. Parameters on several supports in
            one vector: ``constraints.cat([constraints.positive, constraints.real], dim=-1, lengths=[1, 2])`` is a scale
            and two that are free; ``constraints.stack([constraints.positive, constraints.unit_interval], dim=-1)`` has
            one entry of each.
        initial: where particles start. A tensor of as many dimensions as (*batch_shape, *event_shape), or fewer,
            broadcasts to that and is where all chains start; with one dimension more, that is the first, and holds a
            start for every chain. A distribution of one point, which broadcasts likewise, is drawn from for every
            chain and every entry of the batch. None is a standard normal in unconstrained space.
        chain_length, thin: take so many draws from every chain, ``thin`` steps apart, the first after ``num_steps``.
            They depend on one another. Those of one chain stand together, in order: ``sample((n,))`` with n a multiple
            of chain_length, reshaped to (n // chain_length, chain_length, *batch_shape, *event_shape), is (chains,
            draws, ...), as ArviZ's own functions want them; ``to_arviz`` takes the ``transpose(0, 1)`` of that.
        warm_start: later calls go on from where the chains of the last one stopped; see ``state_dict``.
        seed: makes draws independent of torch's global generator: they depend on the seed and on how many calls came
            before, to ``sample``, ``rsample`` and ``expand``. By default every call takes a seed from the generator, so
            that ``torch.manual_seed`` repeats them.
        compile, progress: as for ``torchsrk.sample``, and for ``torchsrk.tune``.
        mesh: of processes (see ``torchsrk.distributed.start``) that share out the draws. All of them make the same
            calls, with a ``seed``, and ``sample((n,))`` gives a DTensor with the draws that one process would have
            made. For a given step_size and num_steps; of what is tuned ``torchsrk.distributed.sample_tuned`` draws.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = True

    def __init__(
        self,
        target: Target | None = None,
        *,
        log_density: Function | None = None,
        energy: Function | None = None,
        step_size: float | None = None,
        num_steps: int | None = None,
        integrator: Integrator | str | None = None,
        tolerance: float = 0.05,
        particles: int = 1000,
        friction: float = 1.5,
        event_shape: Sequence[int] | None = None,
        batch_shape: Sequence[int] | None = None,
        support: constraints.Constraint | None = None,
        initial: Tensor | Distribution | None = None,
        chain_length: int = 1,
        thin: int = 1,
        warm_start: bool = False,
        seed: int | None = None,
        compile: bool | Literal["auto"] = False,
        progress: bool = False,
        mesh: DeviceMesh | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if mesh is not None and (seed is None or step_size is None or chain_length > 1 or warm_start):
            raise ValueError(
                "draws over a mesh need a seed, step_size and num_steps, and come one from a chain that starts anew"
            )
        if seed is not None:
            check_seed(seed)
        target = target_given(target, log_density, energy)
        if initial is not None and not isinstance(initial, (Tensor, Distribution)):
            raise TypeError(f"initial is a tensor, a distribution or None; got {type(initial).__name__}")
        _check_numbers(step_size, num_steps, chain_length, thin, warm_start)
        if integrator is None:
            integrator = "baoab" if step_size is None else "srk-ld"
        self.target = target
        self.step_size, self.num_steps, self.integrator = step_size, num_steps, integrator
        self.initial, self.chain_length, self.thin = initial, chain_length, thin
        self.warm_start, self.seed, self.compile, self.progress = warm_start, seed, compile, progress
        density, batch, event, self._support = described(target, event_shape, batch_shape, support)
        self._scheme, self.friction = integrator_named(integrator), friction
        self._sde = diffusion_for(self._scheme, potential_of(target, density, batch, event, self._support), friction)
        self._is_angle = isinstance(target, Distribution) and is_angle(target)
        self.tolerance, self.particles, self.mesh = tolerance, particles, mesh
        self._calls = 0
        self._chains: Tensor | None = None  # states (chains, *batch_shape, width), where the last call left them
        self._watch: Watch | None = None  # of warm chains, since they began
        self._wanted: dict[torch.dtype, Tensor] = {}  # by a function that shows no tensors, for points of a dtype
        super().__init__(batch, event, validate_args=validate_args)
        self._tuned = self._chains_to_tune() if step_size is None else None

    # ------------------------------------------------------------------------------------ as torch's distributions

    @property
    def support(self) -> constraints.Constraint:
        """Where draws lie: the ``support`` that was given, or all of space."""
        return self._support

    @property
    def mean(self) -> Tensor:
        """The target's, if it is a distribution."""
        return self._normalised("mean").mean

    @property
    def variance(self) -> Tensor:
        """The target's, if it is a distribution."""
        return self._normalised("variance").variance

    def log_prob(self, value: Tensor) -> Tensor:
        """The target's, if it is a distribution; a density that is not normalised has ``unnormalized_log_prob``."""
        target = self._normalised("log_prob")
        if self._validate_args:
            self._validate_sample(value)
        return target.log_prob(value)

    def unnormalized_log_prob(self, value: Tensor) -> Tensor:
        """The target's log density at a point, up to a constant."""
        if self._validate_args:
            self._validate_sample(value)
        if isinstance(self.target, Distribution):
            return self.target.log_prob(value)
        if isinstance(self.target, Constrained):
            return self.target.log_density(value)
        return -self.target(value) if isinstance(self.target, Potential) else self.target(value)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws (*sample_shape, *batch_shape, *event_shape), without a graph."""
        with torch.no_grad(), told_of_support():
            return self._draw(checked_shape("sample_shape", sample_shape), differentiable=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws whose gradients reach the target's parameters, through all steps of the chain.

        Memory grows like the square root of the number of steps: states are recomputed on the way back. A log density
        must be smooth: a corner, as Laplace's has, moves with the parameters, and no gradient by autograd sees that.
        """
        with told_of_support():
            return self._draw(checked_shape("sample_shape", sample_shape), differentiable=True)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> DiffusionDistribution:
        """The same targets in a larger batch, with draws of its own: if seeded, from a seed that no call shares.

        Warm chains go along. Those of new entries of the batch go on from the same points, with noise of their own.
        """
        new = self._get_checked_instance(DiffusionDistribution, _instance)
        batch_shape = checked_shape("batch_shape", batch_shape)
        torch.empty(self.batch_shape).expand(batch_shape)  # raises torch's own error where it can't be
        if self._tuned is not None:
            return self._expanded_with_plan(new, Size(batch_shape))
        is_distribution = isinstance(self.target, Distribution)
        DiffusionDistribution.__init__(
            new,
            self.target.expand(Size(batch_shape)) if isinstance(self.target, Distribution) else self.target,
            step_size=self.step_size,
            num_steps=self.num_steps,
            integrator=self.integrator,
            tolerance=self.tolerance,
            particles=self.particles,
            friction=self.friction,
            event_shape=None if is_distribution else self.event_shape,
            batch_shape=None if is_distribution else batch_shape,
            support=None if is_distribution else self._support,
            initial=self._expanded_initial(len(batch_shape)),
            chain_length=self.chain_length,
            thin=self.thin,
            warm_start=self.warm_start,
            seed=None if self.seed is None else self._next_seed(),
            compile=self.compile,
            progress=self.progress,
            mesh=self.mesh,
            validate_args=vars(self).get("_validate_args"),
        )
        if self._chains is not None:
            chains = with_more_dimensions(self._chains, len(batch_shape) - len(self.batch_shape))
            new._chains = chains.expand(len(chains), *batch_shape, chains.shape[-1]).clone()
        return new

    def _expanded_with_plan(self, new: DiffusionDistribution, batch_shape: Size) -> DiffusionDistribution:
        """Entries of the new batch are targets of the old: they share a plan, and draw from it one after another."""
        assert self._tuned is not None
        vars(new).update(vars(self))
        if isinstance(self.target, Distribution):
            new.target = self.target.expand(batch_shape)
        new._batch_shape, new._tuned, new._calls = batch_shape, self._tuned.shared(), 0
        new.seed = None if self.seed is None else self._next_seed()
        return new

    def _expanded_initial(self, batch_rank: int) -> Tensor | Distribution | None:
        """A start for every chain stays that: its first dimension is not one of the batch."""
        if isinstance(self.initial, Tensor) and self.initial.ndim > len(self.batch_shape) + len(self.event_shape):
            return with_more_dimensions(self.initial, batch_rank - len(self.batch_shape))
        return self.initial

    def __repr__(self) -> str:
        name = type(self.target).__name__ if isinstance(self.target, (nn.Module, Distribution)) else "log density"
        name = "energy" if isinstance(self.target, Negative) else name
        shapes = f"batch_shape={tuple(self.batch_shape)}, event_shape={tuple(self.event_shape)}"
        how = f"step_size={self.step_size}, num_steps={self.num_steps}"
        if self._tuned is not None:
            how = f"tolerance={self.tolerance}, {'not tuned yet' if self._tuned.tuning is None else self._tuned.tuning}"
        return f"{type(self).__name__}({name}, {shapes}, integrator={self.integrator!r}, {how})"

    # ------------------------------------------------------------------------------------------ what was found out

    @property
    def tuning(self) -> Tuning:
        """The plan that draws are made by; it is made now if there is none yet, or if the target has changed."""
        if self._tuned is None:
            raise ValueError("this distribution was given its step_size and num_steps: there is no tuning")
        if self._tuned.is_current and self._tuned.tuning is not None:
            return self._tuned.tuning
        return self._tuned.tuned(self._next_seed(), progress=self.progress)

    @property
    def is_tuned(self) -> bool:
        """Whether there is a plan, and the target is the one that it was made for; if not, the next draw tunes."""
        return self._tuned is not None and self._tuned.is_current

    def diagnose(
        self,
        names: Sequence[str] | Mapping[str, Sequence[int]] | None = None,
        parameters: Callable[[Tensor], Tensor] | None = None,
    ) -> Diagnosis:
        """What speaks for the draws and what against them: print it. See ``torchsrk.diagnose``.

        ``parameters`` takes draws (..., *event_shape) to what is looked at in their place, (..., parameters).

        Looks at draws made for it, of ``particles`` chains: of what is tuned from where its chains are, and otherwise
        from new starts, through ``num_steps`` and as many steps again. Chains stay where they are, so that later draws
        are what they would have been, once there is a tuning.
        """
        targets = self.batch_shape if self._tuned is None else self._tuned.batch_shape
        if len(targets):
            hint = "" if self._tuned is None else ". What tuning found of each is in tuning.reports"
            raise ValueError(f"one target is looked at at a time; this is a batch of shape {tuple(targets)}{hint}")
        if self._tuned is not None:
            plan, run = self._tuned.look(_LOOKED_AT, self._aside(), progress=self.progress)
            return diagnose(run, tuning=plan, parameters=self._parameters(parameters), names=names)
        run = self._trial(self._aside())
        return diagnose(
            run,
            sde=self._sde,
            integrator=self._scheme,
            step_size=self.step_size,
            tolerance=self.tolerance,
            parameters=self._parameters(parameters),
            names=names,
        )

    def _parameters(self, of_draws: Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor] | None:
        """Angles are read within one turn; all else as its potential says, unless the user says it of draws."""
        if of_draws is not None:
            return lambda x: of_draws(self.constrain(x))
        return self.constrain if self._is_angle else None

    def _aside(self) -> int:
        """A seed that no draw has."""
        return derive_seed(derive_seed(self.seed or 0, self._calls), 1)

    def _trial(self, seed: int) -> Run:
        """Draws as ``sample`` makes them, and of the same chains after as many steps again: has the law settled?"""
        assert self.num_steps is not None
        apart = max(1, self.num_steps // _LOOKED_AT)
        start, state = self._start(self.particles, seed)
        chain = self._chain(start, state, seed)
        return chain.advance(_LOOKED_AT * apart, burn_in=self.num_steps - apart, thin=apart, progress=self.progress)

    def constrain(self, x: Tensor) -> Tensor:
        """Points of the support, (..., *event_shape), for positions x (..., dim) such as ``tuning.sample`` draws."""
        points = self._potential.constrain(x) if isinstance(self._potential, Constrained) else x
        points = wrapped(points) if self._is_angle else points
        self._check_inside(points.detach())
        return points

    # ------------------------------------------------------------------------------------------- what goes on

    def state_dict(self) -> dict[str, Any]:
        """What a later call depends on: the number of calls so far, what was tuned, and where persistent chains are."""
        if self._tuned is not None:
            return {"calls": self._calls, "tuned": self._tuned.state_dict()}
        return {"calls": self._calls, "chains": self._chains}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the distribution would have whose state this is.

        Of a target that is another than the one which was tuned, as after training, the next draw tunes anew, from
        where the chains were: ``is_tuned`` tells. ``Tuning.restored`` refuses it, as its plan would stay what it is.
        """
        kept = "chains" if self._tuned is None else "tuned"
        if not isinstance(state, Mapping) or set(state) != {"calls", kept}:
            found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"expected the calls and {kept} that state_dict gives; got {found}")
        calls, chains = state["calls"], state[kept]
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 0:
            raise ValueError(f"calls is a number of calls; got {calls!r}")
        if self._tuned is not None:
            self._tuned.load_state_dict(chains)
            self._calls = calls
            return
        shape = (*self.batch_shape, self._width())
        if chains is not None and (not isinstance(chains, Tensor) or tuple(chains.shape[1:]) != shape):
            given = tuple(chains.shape) if isinstance(chains, Tensor) else type(chains).__name__
            raise ValueError(
                f"chains of this distribution have shape (chains, {', '.join(map(str, shape))}); got {given}"
            )
        if chains is not None and not bool(chains.isfinite().all()):
            raise ValueError(f"chains has {int((~chains.isfinite()).sum())} entries that are infinite or NaN")
        self._calls, self._chains = calls, chains
        self._watch = None if chains is None else Watch.of(chains[..., : self._dim()])

    # ----------------------------------------------------------------------------------------------- the draws

    @property
    def _potential(self) -> Potential:
        return self._sde.potential

    def _draw(self, sample_shape: Size, differentiable: bool) -> Tensor:
        if any(size < 0 for size in sample_shape):
            raise ValueError(f"sample_shape holds sizes of 0 or more; got {tuple(sample_shape)}")
        seed = self._next_seed()
        draws = math.prod(sample_shape)
        if self._tuned is not None:
            return self._draw_tuned(self._tuned, sample_shape, seed, differentiable)
        if self.mesh is not None and draws and 0 not in self.batch_shape:
            if differentiable or len(sample_shape) != 1:
                raise ValueError(f"over a mesh there is sample((n,)), of n draws; got {tuple(sample_shape)}")
            return self._draw_sharded(self.mesh, draws, seed)
        chains = -(-draws // self.chain_length)
        start, state = self._start(chains, seed)
        if draws == 0 or 0 in self.batch_shape:
            return start.new_empty(self._extended_shape(sample_shape))
        kept, ended = self._run(start, state, seed, differentiable)
        if self.warm_start:
            ended = self._near(ended)
            self._chains = ended if self._chains is None else torch.cat((ended, self._chains[chains:]))
        points = self.constrain(kept.transpose(0, 1).flatten(0, 1)[:draws])
        return points.reshape(self._extended_shape(sample_shape))

    def _draw_sharded(self, mesh: DeviceMesh, draws: int, seed: int) -> Tensor:
        """A DTensor of the draws, every process's from starts of its own."""
        from .distributed.draws import made_in_shards, mapped

        start = made_in_shards(draws, mesh, lambda rows: self._start(draws, seed, rows)[0])
        kept, _ = self._run(start, None, seed, differentiable=False)
        points = mapped(self.constrain, kept[0])
        return mapped(lambda rows: rows.reshape(len(rows), *self.batch_shape, *self.event_shape), points)

    def _draw_tuned(self, chains: TunedChains, sample_shape: Size, seed: int, differentiable: bool) -> Tensor:
        draws, targets = math.prod(sample_shape), math.prod(chains.batch_shape)
        count = draws * math.prod(self.batch_shape) // targets if targets else 0
        if count == 0:
            return self._like().new_empty(self._extended_shape(sample_shape))
        if differentiable:
            kept = chains.rdraw(count, seed, progress=self.progress)
            self._check_corner(kept)
        else:
            kept = chains.draw(count, seed, compile=self.compile, progress=self.progress)
        points = spread_over(self.constrain(kept), draws, chains.batch_shape, self.batch_shape)
        return points.reshape(self._extended_shape(sample_shape))

    def _start_to_tune(self, seed: int) -> Tensor:
        """Where an ensemble starts that is tuned, (particles, *batch_shape, dim)."""
        like = self._like()
        if self.initial is not None:
            return self._unconstrain(self._initial_points(self.particles, seed))
        shape = (self.particles, *self.batch_shape, self._dim())
        flat = (math.prod(shape[:-1]), shape[-1])
        drawn = draw_uniform(flat, seed=seed, stream=Stream.START, device=like.device).reshape(shape)
        return (4.0 * drawn - 2.0).to(like.dtype)

    def _chains_to_tune(self) -> TunedChains:
        options = {"particles": self.particles, "tolerance": self.tolerance, "integrator": self.integrator}
        options |= {"compile": self.compile}
        return TunedChains(self._potential, self._start_to_tune, self.batch_shape, **options)

    def _run(self, start: Tensor, state: Tensor | None, seed: int, differentiable: bool) -> tuple[Tensor, Tensor]:
        """The kept positions, (chain_length, chains, *batch_shape, dim), and the states at the end."""
        assert self.num_steps is not None
        assert self.step_size is not None
        if differentiable:
            steps = [self.num_steps + k * self.thin for k in range(self.chain_length)]
            ts = [0.0, *(count * self.step_size for count in steps)]
            options: dict[str, Any] = {"integrator": self.integrator, "step_size": self.step_size, "seed": seed}
            options |= {"recompute": not is_transformed(), "progress": self.progress}
            watch = self._watch_from(start)
            try:
                kept = integrate(self._sde, start, ts, **options)[1:]
            except NonFiniteStateError as failure:
                add_hint_of_sign(failure, self._sde, watch.start, lambda state, _: state[..., : start.shape[-1]])
                raise
            watch.look(self._sde, kept[-1].detach(), stacklevel=5)
            self._check_corner(kept)
            return kept, self._begun(kept[-1].detach(), seed)
        run = self._chain(start, state, seed).advance(
            self.chain_length * self.thin,
            burn_in=self.num_steps - self.thin,
            thin=self.thin if self.chain_length > 1 else None,
            progress=self.progress,
        )
        return run.final.unsqueeze(0) if run.trajectory is None else run.trajectory, run.state

    def _chain(self, start: Tensor, state: Tensor | None, seed: int) -> Chain:
        """Chains from ``start``, or those of a ``state`` that go on; with a seed of its own for every call."""
        assert self.step_size is not None
        options: dict[str, Any] = {"integrator": self.integrator, "step_size": self.step_size, "compile": self.compile}
        chain = Chain(self._sde, start, state=state, seed=seed, **options)
        return chain.watched_by(self._watch_from(start))

    def _watch_from(self, start: Tensor) -> Watch:
        """For runs from ``start``, or of warm chains, since their first."""
        if self._watch is not None and self.warm_start:
            return self._watch
        watch = Watch.of(start)
        if self.warm_start and watch.start is not None:
            self._watch = watch
        return watch

    def _check_corner(self, draws: Tensor) -> None:
        if draws.requires_grad and has_corner(self.target):
            raise ValueError(
                "the log density of a Laplace distribution has a corner, and the gradients of a chain would be wrong: "
                "use sample(), or the distribution's own rsample"
            )

    def _begun(self, x: Tensor, seed: int, first_chain: int = 0) -> Tensor:
        """The states of chains that begin at x (chains, *batch_shape, dim)."""
        normals = start_normals(seed, first_particle=first_chain * math.prod(self.batch_shape))
        with torch.no_grad():
            return self._scheme.init(self._sde, 0.0, x, float(self.step_size or 1.0), normals)

    def _width(self) -> int:
        like = self._like()
        return self._begun(like.new_zeros(1, *self.batch_shape, self._dim()), 0).shape[-1]

    def _like(self, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor with the dtype and device of starts, that are given in a dtype or drawn in torch's default."""
        own = own_tensor(self.target)
        if own is not None:
            return check_precision(own)
        dtype = dtype or torch.get_default_dtype()
        if dtype not in self._wanted:
            batch = self.batch_shape if self._tuned is None else self._tuned.batch_shape
            self._wanted[dtype] = tensor_wanted(self._potential, batch, dtype)
        return self._wanted[dtype]

    def _dim(self) -> int:
        dim = self._potential.dim
        assert dim is not None
        return dim

    def _start(self, chains: int, seed: int, rows: range | None = None) -> tuple[Tensor, Tensor | None]:
        """Positions (chains, *batch_shape, dim) in unconstrained space, and the states of chains that go on.

        ``rows`` are those of the chains that are wanted, by default all.
        """
        rows = range(chains) if rows is None else rows
        going_on = self._chains[:chains] if self.warm_start and self._chains is not None else None
        shape = (len(rows), *self.batch_shape, self._dim())
        if self.initial is None:
            like, first = self._like(), rows.start * math.prod(self.batch_shape)
            with outside_transforms():
                drawn = torch.empty(math.prod(shape[:-1]), shape[-1], dtype=like.dtype, device=like.device)
                start = fill_normal(drawn, seed=seed, stream=Stream.START, first_particle=first).view(shape)
        else:
            points = self._unconstrain(self._initial_points(chains, seed)).expand(chains, *shape[1:])
            start = points[rows.start : rows.stop]
        if going_on is None:
            return start, None
        state = torch.cat((going_on, self._begun(start[len(going_on) :], seed, len(going_on))))
        return state[..., : shape[-1]], state

    def _initial_points(self, chains: int, seed: int) -> Tensor:
        """(chains, *batch_shape, *event_shape)."""
        shape = self.batch_shape + self.event_shape
        if isinstance(self.initial, Distribution):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                points = drawn_starts(self.initial, chains, shape)
        else:
            assert self.initial is not None
            points = given_starts(self.initial.detach(), chains, shape)
        # Not by torch's default, which the first use of torch.compile in a process turns off.
        if vars(self).get("_validate_args", True) and not bool(self._support.check(points).all()):
            raise ValueError(f"there are initial points outside the support, {self._support}")
        return points if own_tensor(self.target) is not None else points.to(self._like(points.dtype).dtype)

    def _next_seed(self) -> int:
        if self.seed is None:
            return int(torch.randint(2**63 - 1, ()))
        self._calls += 1
        return derive_seed(self.seed, self._calls - 1)

    def _near(self, x: Tensor) -> Tensor:
        """States of warm chains of angles, which would wander ever farther from 0, taken back by whole turns."""
        dim = self._dim()
        return torch.cat((wrapped(x[..., :dim]), x[..., dim:]), -1) if self._is_angle else x

    def _check_inside(self, points: Tensor) -> None:
        inside = self._support.check(points)
        if not bool(inside.all()) or not bool(points.isfinite().all()):
            raise ValueError(
                f"there are draws too large or too small for {points.dtype} to hold them inside the support, "
                f"{self._support}: take a target in float64, a smaller step size, or another parametrisation"
            )

    def _unconstrain(self, points: Tensor) -> Tensor:
        return self._potential.unconstrain(points) if isinstance(self._potential, Constrained) else points

    def _normalised(self, name: str) -> Distribution:
        if not isinstance(self.target, Distribution):
            raise NotImplementedError(
                f"{name} needs a normalised target, and this one is known up to a constant: use unnormalized_log_prob, "
                "or estimate from draws"
            )
        return self.target


def _check_numbers(
    step_size: float | None, num_steps: int | None, chain_length: int, thin: int, warm_start: bool
) -> None:
    """One clear error for numbers that can't be, or that a tuned distribution finds out itself."""
    if (step_size is None) is not (num_steps is None):
        raise ValueError(
            "give step_size and num_steps, or neither, so that both are found out; got "
            f"step_size={step_size!r} and num_steps={num_steps!r}"
        )
    for name, value in (
        ("num_steps", 1 if num_steps is None else num_steps),
        ("chain_length", chain_length),
        ("thin", thin),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is a positive integer; got {value!r}")
    if step_size is None or num_steps is None:
        if chain_length > 1 or thin > 1 or warm_start:
            raise ValueError(
                "chain_length, thin and warm_start are for a given step_size and num_steps: what is tuned finds the "
                "steps between draws itself, and its chains always go on"
            )
        return
    check_step_size(step_size)
    if thin > num_steps:
        raise ValueError(f"thin is at most num_steps, {num_steps}; got {thin}")
