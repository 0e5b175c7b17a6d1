"""Plans of several targets made side by side: what they ask for at the same time is answered in one go."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from torch import Size, Tensor

from ..blocks import torch_threads
from ..coupling import coupled_positions
from ..integrators import Integrator
from ..potentials import AffinePotential, Potential
from ..potentials.affine import Diagonal, LowRank, Scale, Triangular
from ..sampling import sample
from ..sde import Langevin, UnderdampedLangevin
from ..targets import diffusion_for
from .bias import LEVELS
from .ensemble import Ensemble, energies_and_gradients
from .metric import Coordinates
from .requests import Asked, Asking, Chain, Coupled, Phase, Points, Read, Show
from .shares import Shares

T = TypeVar("T")
Answers = dict[int, Any]
Diffusion = Langevin | UnderdampedLangevin


class Density:
    """The density that is tuned, or all those of a batch, and its answers.

    All else in tuning runs on one thread, so that its sums are the same bits on any machine; blocks of particles share
    out the threads that there were when this was made.

    Args:
        potential: points (..., *batch_shape, dim) to energies (..., *batch_shape).
        constrain: positions (rows, *batch_shape, dim) to what a user reads, (rows, *batch_shape, ...), if it is more.
        particles: of every target.
        compile: run chains as compiled steps.
        shares: particles that are evaluated together.
    """

    def __init__(
        self,
        potential: Potential,
        batch_shape: Size,
        constrain: Callable[[Tensor], Tensor] | None,
        particles: int,
        compile: bool | Literal["auto"] = False,
        shares: Shares | None = None,
    ) -> None:
        self.potential, self.batch_shape, self.constrain = potential, batch_shape, constrain
        shares = shares or Shares()
        self.particles, self.compile, self.block_size = particles, compile, shares.block_size
        self.targets = math.prod(batch_shape)
        self.gradients = [0.0] * self.targets  # a particle, on average
        self._threads = torch.get_num_threads() if shares.threaded else 1
        self._last: dict[tuple[type, int], Any] = {}  # what a target asked last of each kind
        self._diffusions: dict[tuple[Any, ...], tuple[AffinePotential, Diffusion]] = {}

    def answer(self, asked: Mapping[int, Asked]) -> Answers:
        """Answers to requests of one kind, by target."""
        first = next(iter(asked.values()))
        for target, request in asked.items():
            self._last[type(first), target] = request
        # A target that does not ask now has to be evaluated along with the others.
        requests = [
            asked[target] if target in asked else _idle(self._last[type(first), target], first)
            for target in range(self.targets)
        ]
        serve: dict[type, Callable[[Any, Any], list[Any]]]
        serve = {Points: self._points, Read: self._read, Chain: self._chain, Coupled: self._coupled}
        answers = serve[type(first)](requests, first)
        return {target: answers[target] for target in asked}

    def whitened(
        self, scheme: Integrator, friction: float, coordinates: Coordinates
    ) -> tuple[AffinePotential, Diffusion]:
        """The potential in coordinates, and its diffusion: those given before with other numbers in them, if there are
        any, so that steps compiled for one serve all."""
        shapes = tuple((name, tuple(buffer.shape)) for name, buffer in coordinates.scale.named_buffers())
        key = (type(coordinates.scale), shapes, coordinates.loc.dtype, friction, is_underdamped(scheme, self.potential))
        if key not in self._diffusions:
            potential = AffinePotential(self.potential, coordinates.loc.clone(), copy.deepcopy(coordinates.scale))
            self._diffusions[key] = potential, diffusion_for(scheme, potential, friction)
        known, diffusion = self._diffusions[key]
        known.loc.copy_(coordinates.loc)
        for buffer, new in zip(known.scale.buffers(), coordinates.scale.buffers(), strict=True):
            buffer.copy_(new)
        return known, diffusion

    # ------------------------------------------------------------------------------------------------- one kind each

    def _points(self, requests: Sequence[Points], first: Points) -> list[Any]:
        x = self._stacked([request.x for request in requests])
        with torch_threads(self._threads):
            energy, gradient = energies_and_gradients(self.potential, x, self._blocks_of(len(x)))
        energies, gradients = self._apart(energy.unsqueeze(-1)), self._apart(gradient)
        found = []
        for target, request in enumerate(requests):
            rows = slice(0, len(request.x))
            found.append(Ensemble.found(request.x, energies[target][rows, 0], gradients[target][rows]))
        self._count([len(request.x) / self.particles for request in requests])
        return found

    def _read(self, requests: Sequence[Read], first: Read) -> list[Any]:
        if self.constrain is None:
            return [None] * self.targets
        points = self.constrain(self._stacked([request.x.flatten(0, -2) for request in requests]))
        apart = self._apart(points.reshape(len(points), *self.batch_shape, -1))
        counts = [request.x[..., 0].numel() for request in requests]
        return [
            apart[target][:count].reshape(*request.x.shape[:-1], -1)
            for target, (request, count) in enumerate(zip(requests, counts, strict=True))
        ]

    def _chain(self, requests: Sequence[Chain], first: Chain) -> list[Any]:
        frame = _Frame(self, requests, first)
        with torch_threads(self._threads):
            run = sample(
                frame.sde,
                frame.inward([request.z for request in requests]),
                integrator=first.scheme,
                step_size=frame.step_size,
                num_steps=first.steps,
                seed=first.seed,
                first_particle=first.first_particle * self.targets,
                check_every=first.steps,
                block_size=self._blocks_of(len(first.z)),
                compile=self.compile,
            )
        self._count([(first.steps + 1) * len(first.z) / self.particles] * self.targets)
        tallies = {name: self._apart(count.unsqueeze(-1)) for name, count in first.scheme.tallies(run.state).items()}
        shares = [
            {name: float(counts[target].double().mean()) / first.steps for name, counts in tallies.items()}
            for target in range(self.targets)
        ]
        return list(zip(frame.outward(run.final), shares, strict=True))

    def _coupled(self, requests: Sequence[Coupled], first: Coupled) -> list[Any]:
        frame = _Frame(self, requests, first)
        periods = max(request.periods for request in requests)
        with torch_threads(self._threads):
            kept = coupled_positions(
                frame.sde,
                frame.inward([request.z for request in requests]),
                integrator=first.scheme,
                step_size=frame.step_size,
                levels=LEVELS,
                periods=periods,
                seed=first.seed,
                block_size=self._blocks_of(len(first.z)),
                compile=self.compile,
            )
        self._count([float(first.scheme.gradients_per_step * periods * (2**LEVELS - 1) + LEVELS)] * self.targets)
        rows = kept.reshape(-1, *kept.shape[3:])
        return [
            z.reshape(*kept.shape[:3], -1)[: request.periods]
            for z, request in zip(frame.outward(rows), requests, strict=True)
        ]

    # --------------------------------------------------------------------------------------------- targets and batches

    def _blocks_of(self, rows: int) -> int | None:
        """The size of blocks where there are several: one alone torch would share out, and round by its threads."""
        return self.block_size if self.block_size is not None and self.block_size < rows else None

    def _count(self, gradients: Sequence[float]) -> None:
        self.gradients = [before + more for before, more in zip(self.gradients, gradients, strict=True)]

    def _stacked(self, rows: Sequence[Tensor]) -> Tensor:
        """(most rows, *batch_shape, dim): a target that asks for fewer repeats its last."""
        most = max(map(len, rows))
        return torch.stack([_with_rows(part, most) for part in rows], 1).reshape(most, *self.batch_shape, -1)

    def _apart(self, rows: Tensor) -> list[Tensor]:
        """(rows, width) of every target, from (rows, *batch_shape, width)."""
        return list(rows.reshape(len(rows), self.targets, -1).unbind(1))


def _idle(last: Asked, asked: Asked) -> Asked:
    """What a target asked last, of as many particles as others ask now."""
    if isinstance(last, (Points, Read)):
        return replace(last, x=last.x.flatten(0, -2)[:1])
    assert isinstance(asked, (Chain, Coupled))
    z = _with_rows(last.z, len(asked.z))
    return replace(last, z=z, periods=1) if isinstance(last, Coupled) else replace(last, z=z)


def _with_rows(rows: Tensor, count: int) -> Tensor:
    """The first so many, the last of them repeated where there are fewer."""
    return torch.cat((rows[:count], rows[-1:].expand(max(0, count - len(rows)), -1)))


class _Frame:
    """The whitened diffusions of all targets as one, with one step size.

    The step size of a target is a matter of its coordinates: with c·S for S a step h of an underdamped diffusion is one
    of c·h, and a step of an overdamped one of c²·h.
    """

    def __init__(self, density: Density, requests: Sequence[Chain] | Sequence[Coupled], first: Chain | Coupled) -> None:
        self._apart, self._stacked = density._apart, density._stacked
        self.step_size, coordinates, self.stretches = one_step_size(
            [request.step_size for request in requests],
            [request.coordinates for request in requests],
            underdamped=is_underdamped(first.scheme, density.potential),
        )
        _, self.sde = density.whitened(first.scheme, first.friction, joined(coordinates, density.batch_shape))

    def inward(self, z: Sequence[Tensor]) -> Tensor:
        """(particles, *batch_shape, dim), from every target's own."""
        return self._stacked([part / by if by != 1.0 else part for part, by in zip(z, self.stretches, strict=True)])

    def outward(self, z: Tensor) -> list[Tensor]:
        return [part * by if by != 1.0 else part for part, by in zip(self._apart(z), self.stretches, strict=True)]


def is_underdamped(scheme: Any, potential: Potential) -> bool:
    """Whether tuning runs an underdamped diffusion with this scheme."""
    return isinstance(diffusion_for(scheme, potential, 1.0), UnderdampedLangevin)


def one_step_size(
    step_sizes: Sequence[float], coordinates: Sequence[Coordinates], *, underdamped: bool
) -> tuple[float, list[Coordinates], list[float]]:
    """The step size of all, coordinates in which it is each target's own, and how much those are stretched."""
    if len(step_sizes) == 1:
        return step_sizes[0], list(coordinates), [1.0]
    common = math.exp(sum(map(math.log, step_sizes)) / len(step_sizes))
    stretches = [own / common if underdamped else math.sqrt(own / common) for own in step_sizes]
    stretched = [
        Coordinates(part.loc, _stretched(part.scale, by)) for part, by in zip(coordinates, stretches, strict=True)
    ]
    return common, stretched, stretches


def joined(coordinates: Sequence[Coordinates], batch_shape: Size) -> Coordinates:
    """The coordinates of all targets, as those of a batch."""
    if len(coordinates) == 1 and not batch_shape:
        return coordinates[0]
    loc = torch.stack([part.loc for part in coordinates])
    return Coordinates(loc.reshape(*batch_shape, -1), _joined_scale([part.scale for part in coordinates], batch_shape))


def _joined_scale(scales: Sequence[Scale], batch_shape: Size) -> Scale:
    diagonals = [scale.diagonal for scale in scales if isinstance(scale, Diagonal)]
    if len(diagonals) == len(scales):
        return Diagonal(torch.stack(diagonals).reshape(*batch_shape, -1))
    triangles = torch.stack([_triangle(scale) for scale in scales])
    return Triangular(triangles.reshape(*batch_shape, *triangles.shape[-2:]))


def _stretched(scale: Scale, by: float) -> Scale:
    return Diagonal(by * scale.diagonal) if isinstance(scale, Diagonal) else Triangular(by * _triangle(scale))


def _triangle(scale: Scale) -> Tensor:
    """L with LLᵀ = SSᵀ, (dim, dim)."""
    if isinstance(scale, Triangular):
        return scale.factor
    assert isinstance(scale, (Diagonal, LowRank))
    if isinstance(scale, Diagonal):
        return torch.diag(scale.diagonal)
    rows = scale.times(torch.eye(len(scale.diagonal)).to(scale.diagonal))  # row i is S e_i
    return torch.linalg.cholesky(rows.mT @ rows)


# Earlier kinds first: a target that is ahead waits until the others ask for the same.
_ORDER = (Points, Chain, Read, Coupled)


def together(tasks: Sequence[Asking[T]], density: Density, bar: Any) -> tuple[list[T], list[dict[str, float]]]:
    """The results of all tasks, and the gradients that each phase of each took a particle."""
    desk = _Desk(tasks, density, bar)
    for target in range(len(tasks)):
        desk.go_on(target, None)
    while desk.waiting:
        for target, answer in density.answer(desk.next()).items():
            desk.go_on(target, answer)
    return [desk.results[target] for target in range(len(tasks))], desk.spent


class _Desk:
    """Who waits for what."""

    def __init__(self, tasks: Sequence[Asking[Any]], density: Density, bar: Any) -> None:
        self.tasks, self.density, self.bar = tasks, density, bar
        self.waiting: dict[int, Asked] = {}
        self.results: dict[int, Any] = {}
        self.spent: list[dict[str, float]] = [{} for _ in tasks]
        self._phases: list[tuple[str, float]] = [("", 0.0)] * len(tasks)

    def next(self) -> dict[int, Asked]:
        """Requests that are answered together."""
        first = min(map(_key, self.waiting.values()))
        return {target: request for target, request in self.waiting.items() if _key(request) == first}

    def go_on(self, target: int, answer: Any) -> None:
        """Hand a task its answer, and see what it asks for then."""
        try:
            request = self.tasks[target].send(answer)
            while isinstance(request, (Phase, Show)):
                self._tell(target, request)
                request = next(self.tasks[target])
            self.waiting[target] = request
        except StopIteration as end:
            self._tell(target, Phase(""))
            self.waiting.pop(target, None)
            self.results[target] = end.value
        except ValueError as error:
            if not self.density.batch_shape:
                raise
            raise ValueError(f"target {entry_of(target, self.density.batch_shape)} of the batch: {error}") from error

    def _tell(self, target: int, news: Phase | Show) -> None:
        if isinstance(news, Show):
            self.bar.set_postfix_str(news.text)
            return
        name, before = self._phases[target]
        if name:
            self.spent[target][name] = self.density.gradients[target] - before
            self.bar.update()
        self._phases[target] = (news.name, self.density.gradients[target])
        self.bar.set_description_str(f"tune: {news.name}")


def _key(request: Asked) -> tuple[Any, ...]:
    kind = _ORDER.index(type(request))
    return (kind, request.steps, request.first_particle) if isinstance(request, Chain) else (kind,)


def entry_of(number: int, batch_shape: Size) -> tuple[int, ...]:
    """The indices of an entry of a batch, from its number in row-major order."""
    indices = []
    for size in reversed(batch_shape):
        number, index = divmod(number, size)
        indices.append(index)
    return tuple(reversed(indices))
