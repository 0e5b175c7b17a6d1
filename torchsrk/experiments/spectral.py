"""The law of any scheme's steps in one or two dimensions, as moments of polynomials: no sampling, no formula.

A step of the scheme itself, averaged over the nodes of a Gauss rule for its noise, takes a polynomial of the state to a
function of the state before; its projection on polynomials, in the mean square of the target, is a matrix that maps
moments to moments. W2 comes from moments, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

from ..brownian.draws import draws
from ..brownian.increment import Increment
from ..integrators import Integrator
from ..potentials import Potential
from ..sde import Langevin, UnderdampedLangevin

_CHUNK = 4_000_000  # numbers of a table of polynomials that are held at once
_NEAR = 0.5  # standard deviations
_CHANGE = 2.0  # by which W2² of a law that near may differ from its linearization


@dataclass(frozen=True)
class Fineness:
    """How finely a law is resolved.

    Attributes:
        degree: of the polynomials whose moments are followed, all coordinates of the state together.
        map_degree: of those whose gradients carry the target to the law.
        extra: Gauss nodes a coordinate beyond the degree.
        normals: Gauss nodes for each part of a step's noise, a coordinate.
    """

    degree: int
    map_degree: int = 12
    extra: int = 12
    normals: tuple[tuple[str, int], ...] = (("W", 16), ("H", 8), ("Z", 5), ("u", 6))


class Polynomials:
    """Polynomials up to a total degree, orthonormal under exp(-f) times N(0, u) for velocities, if there are any.

    They are built from Hermite's in standard deviations about the mean, which are far better to compute with than
    powers. The first one is 1.
    """

    def __init__(self, block: Block, degree: int, extra: int, *, mass: float | None = None) -> None:
        spread = block.deviation if mass is None else torch.cat((block.deviation, torch.full_like(block.mean, mass)))
        self.center = block.mean if mass is None else torch.cat((block.mean, torch.zeros_like(block.mean)))
        self.spread, self.degree = spread, degree
        dim = len(spread)
        powers = [index for index in product(range(degree + 1), repeat=dim) if sum(index) <= degree]
        self.powers = torch.tensor(sorted(powers, key=lambda index: (sum(index), index)))
        unit, weights = gauss_hermite(degree + extra, dim)
        self.nodes = self.center + spread * unit
        own = unit[:, : len(block.mean)]
        density = (0.5 * own.square().sum(-1) - block.potential(self.nodes[:, : len(block.mean)])).exp()
        self.weights = weights * density / (weights @ density)
        factor = torch.linalg.qr(self.weights.sqrt().unsqueeze(-1) * self.raw(self.nodes), mode="r").R
        self.inverse = torch.linalg.inv(factor * factor.diagonal().sign().unsqueeze(-1))
        self.values = self.raw(self.nodes) @ self.inverse

    def raw(self, points: Tensor) -> Tensor:
        """Products of Hermite's polynomials at points (..., dim), (..., polynomials)."""
        tables = hermite((points - self.center) / self.spread, self.degree)
        found = tables[..., 0, self.powers[:, 0]]
        for number in range(1, len(self.center)):
            found = found * tables[..., number, self.powers[:, number]]
        return found

    def raw_slopes(self, points: Tensor) -> Tensor:
        """Their gradients, (..., dim, polynomials)."""
        tables = hermite((points - self.center) / self.spread, self.degree)
        orders = torch.arange(self.degree + 1, dtype=torch.float64)
        slopes = torch.zeros_like(tables)
        slopes[..., 1:] = orders[1:].sqrt() * tables[..., :-1] / self.spread.unsqueeze(-1)
        found = []
        for along in range(len(self.center)):
            parts = [(slopes if k == along else tables)[..., k, self.powers[:, k]] for k in range(len(self.center))]
            found.append(math.prod(parts[1:], start=parts[0]))
        return torch.stack(found, -2)

    def project(self, values: Tensor) -> Tensor:
        """Coefficients (functions, polynomials) of functions given at the nodes, (nodes, functions)."""
        return values.mT @ (self.weights.unsqueeze(-1) * self.values)


class Block:
    """A target in one or two dimensions, with the mean and the standard deviations that polynomials are scaled by."""

    def __init__(self, potential: Potential, *, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self.potential = potential
        self.mean = torch.tensor(mean, dtype=torch.float64)
        self.deviation = torch.tensor(deviation, dtype=torch.float64)

    @property
    def dim(self) -> int:
        return len(self.mean)


class Transport:
    """W2 between a block and laws given by their moments."""

    def __init__(self, block: Block, fineness: Fineness) -> None:
        self.basis = Polynomials(block, fineness.map_degree, fineness.extra)
        self.scale = float(block.deviation.min())

    @cached_property
    def slopes(self) -> Tensor:
        """Gradients of all polynomials but the first at the nodes, (nodes, dim, polynomials)."""
        return (self.basis.raw_slopes(self.basis.nodes) @ self.basis.inverse)[..., 1:]

    @cached_property
    def stiffness(self) -> Tensor:
        """∫q∇p·∇p' over the target, of polynomials q, p and p' in this order; its first matrix is that of q = 1."""
        basis = self.basis
        pairs = torch.einsum("ndj,ndk->njk", self.slopes, self.slopes).flatten(1)
        size = self.slopes.shape[-1]
        return ((basis.weights.unsqueeze(-1) * basis.values).mT @ pairs).view(-1, size, size)

    def squared(self, moments: Tensor) -> Tensor:
        """W2² to laws with these moments (laws, polynomials).

        W2² is the least ∫|∇φ|² over a path of laws: here the straight one from the target, on which that is the
        difference of moments, squared in the inverse of ∫∇p·∇p', taken halfway. For normals apart by δ in deviation
        this is δ(1 - δ²/8). Laws beyond half a deviation, where no more is asked than that they are far, are measured
        from the target alone.
        """
        apart, first, found = moments[:, 1:], self.stiffness[0], self.linearized(moments)
        near = (found < (_NEAR * self.scale) ** 2).nonzero().squeeze(-1)
        for part in near.split(max(1, _CHUNK // first.numel())):
            halfway = first + 0.5 * torch.einsum("ln,njk->ljk", apart[part], self.stiffness[1:])
            exact = (apart[part] * torch.linalg.solve(halfway, apart[part])).sum(-1)
            # Of a law with so few moments that it is none, or of masses that are negative, the matrix is not definite.
            if not bool(((exact <= _CHANGE * found[part]) & (found[part] <= _CHANGE * exact)).all()):
                raise ArithmeticError("moments that are those of no law near the target: take another degree")
            found[part] = exact
        return found

    def of_normals(self, moments: Tensor) -> Tensor:
        """W2² between normals of the laws' means and covariances and of the target's: no law is nearer (Gelbrich)."""
        x = self.basis.nodes
        dim = x.shape[-1]
        pairs = torch.einsum("ni,nj->nij", x, x).flatten(1)
        told = moments @ self.basis.project(torch.cat((x, pairs), -1)).mT
        own = self.basis.weights @ torch.cat((x, pairs), -1)
        spreads = [
            both[..., dim:].unflatten(-1, (dim, dim)) - both[..., :dim].unsqueeze(-1) * both[..., None, :dim]
            for both in (told, own)
        ]
        between = spreads[0] @ spreads[1]
        squares, both = (m.diagonal(dim1=-2, dim2=-1).sum(-1) for m in (between, spreads[0] + spreads[1]))
        if dim == 2:  # the square of the trace of a matrix's root
            squares = squares + 2.0 * torch.linalg.det(between).clamp_min(0.0).sqrt()
        apart = (told[..., :dim] - own[:dim]).square().sum(-1)
        return (apart + both - 2.0 * squares.clamp_min(0.0).sqrt()).clamp_min(0.0)

    def at_least(self, moments: Tensor) -> Tensor:
        """``squared`` of laws near to the target, and ``of_normals`` of others."""
        found = self.of_normals(moments)
        near = self.linearized(moments) < (_NEAR * self.scale) ** 2
        found[near] = self.squared(moments[near])
        return found

    def linearized(self, moments: Tensor) -> Tensor:
        """What W2² is for laws near to the target; of masses that may be negative, too, this is a squared norm: how far
        expectations can be off, of functions whose gradient has a mean square of 1."""
        apart = moments[:, 1:].mT
        return (apart * torch.linalg.solve(self.stiffness[0], apart)).sum(0)


@dataclass(frozen=True)
class Chain:
    """Moments of a scheme's states: how a step maps them, what they say of positions, and where they begin.

    Attributes:
        step: (polynomials, polynomials); ``read``: (position polynomials, polynomials); ``start``: (polynomials,).
    """

    step: Tensor
    read: Tensor
    start: Tensor

    def moments(self, steps: int) -> Tensor:
        """Of positions after 1, 2, ... steps, (steps, position polynomials)."""
        columns, power = (self.step @ self.start).unsqueeze(-1), self.step
        while columns.shape[-1] < steps:
            columns = torch.cat((columns, power @ columns), -1)
            power = power @ power
        return (self.read @ columns[:, :steps]).mT

    def moments_at(self, steps: Sequence[int]) -> Tensor:
        """Those of positions after these many steps, rising, (len(steps), position polynomials)."""
        powers, state, done, found = [self.step], self.start, 0, []
        for count in steps:
            for bit in range((count - done).bit_length()):
                if bit == len(powers):
                    powers.append(powers[-1] @ powers[-1])
                if (count - done) >> bit & 1:
                    state = powers[bit] @ state
            done = count
            found.append(self.read @ state)
        return torch.stack(found)

    def contraction(self) -> float:
        """The factor by which what is left of the start shrinks a step, in the long run."""
        return float(torch.linalg.eigvals(self.step[1:, 1:]).abs().max())

    def stationary(self) -> Tensor:
        """Of positions under the law that is kept, (1, position polynomials)."""
        size = len(self.step) - 1
        rest = torch.linalg.solve(torch.eye(size).to(self.step) - self.step[1:, 1:], self.step[1:, 0])
        return (self.read @ torch.cat((torch.ones(1).to(rest), rest))).unsqueeze(0)


def chain(
    block: Block,
    sde: Langevin | UnderdampedLangevin,
    scheme: Integrator,
    *,
    step_size: float,
    start: tuple[Tensor, Tensor],
    fineness: Fineness,
    transport: Transport,
) -> Chain:
    """From normals of this mean and these deviations, (dim,) each and maybe 0; velocities at rest's law."""
    scheme.check(sde)
    mass = math.sqrt(sde.u) if isinstance(sde, UnderdampedLangevin) else None
    basis = Polynomials(block, fineness.degree, fineness.extra, mass=mass)
    counts = dict(fineness.normals)
    known = {
        draw.part: draw.scale for draw in draws(scheme.required(sde) | scheme.position_needs, step_size, block.dim)
    }
    with torch.no_grad():
        moved = torch.zeros_like(basis.values)
        for increment, weights in _increments(known, counts, step_size, block.dim, *basis.values.shape):
            states = basis.nodes.repeat_interleave(len(weights), 0)
            after = basis.raw(scheme.step(sde, 0.0, states, increment))
            moved += torch.einsum("r,nrk->nk", weights, after.view(len(basis.nodes), len(weights), -1))
        seen = torch.zeros(len(basis.nodes), len(transport.basis.powers), dtype=torch.float64)
        needed = {part: known[part] for part in ("W",) if scheme.position_needs}
        for increment, weights in _increments(needed, counts, step_size, block.dim, *basis.values.shape):
            states = basis.nodes.repeat_interleave(len(weights), 0)
            told = transport.basis.raw(scheme.position(sde, 0.0, states, increment))
            seen += torch.einsum("r,nrk->nk", weights, told.view(len(basis.nodes), len(weights), -1))
        begun = _start(block, sde, scheme, step_size, start, basis, fineness)
    return Chain(basis.project(moved @ basis.inverse), basis.project(seen @ transport.basis.inverse), begun)


def _start(
    block: Block,
    sde: Langevin | UnderdampedLangevin,
    scheme: Integrator,
    h: float,
    start: tuple[Tensor, Tensor],
    basis: Polynomials,
    fineness: Fineness,
) -> Tensor:
    """Moments of the first state, (polynomials,)."""
    unit, weights = gauss_hermite(fineness.degree + fineness.extra, len(basis.center))
    x = start[0] + start[1] * unit[:, : block.dim]
    speeds = unit[:, block.dim :] if len(basis.center) > block.dim else torch.zeros_like(x)
    state = scheme.init(sde, 0.0, x, h, lambda like: speeds.expand_as(like))
    return (weights @ basis.raw(state)) @ basis.inverse


def _increments(
    scales: dict[str, float], counts: dict[str, int], h: float, dim: int, states: int, polynomials: int
) -> Iterator[tuple[Increment, Tensor]]:
    """The nodes of a Gauss rule over a step's noise, for so many states each, and their weights, in parts."""
    rules = []
    for part, scale in scales.items():
        if part == "u":
            times, shares = np.polynomial.legendre.leggauss(counts[part])
            rules.append((torch.from_numpy(0.5 * (1.0 + times)).unsqueeze(-1), torch.from_numpy(0.5 * shares)))
        else:
            unit, own = gauss_hermite(counts[part], dim)
            rules.append((scale * unit, own))
    places = torch.tensor(list(product(*(range(len(weights)) for _, weights in rules))), dtype=torch.int64)
    for rows in places.split(max(1, _CHUNK // (states * polynomials))):
        together = torch.ones(len(rows), dtype=torch.float64)
        parts = {"W": torch.zeros(states * len(rows), dim, dtype=torch.float64)}
        for number, (part, (nodes, own)) in enumerate(zip(scales, rules, strict=True)):
            together = together * own[rows[:, number]]
            parts[part] = nodes[rows[:, number]].repeat(states, 1)
        yield Increment(h, **parts), together


def hermite(x: Tensor, degree: int) -> Tensor:
    """Hermite's polynomials at x (...), orthonormal under N(0, 1): (..., degree + 1)."""
    found = [torch.ones_like(x), x]
    for k in range(1, degree):
        found.append((x * found[k] - math.sqrt(k) * found[k - 1]) / math.sqrt(k + 1))
    return torch.stack(found[: degree + 1], -1)


def gauss_hermite(count: int, dim: int) -> tuple[Tensor, Tensor]:
    """Nodes (nodes, dim) and weights of Gauss's rule for a standard normal."""
    nodes, weights = (torch.from_numpy(array) for array in np.polynomial.hermite_e.hermegauss(count))
    weights = weights / weights.sum()
    if dim == 1:
        return nodes.unsqueeze(-1), weights
    grid = torch.cartesian_prod(*[nodes] * dim)
    return grid, torch.cartesian_prod(*[weights] * dim).prod(-1)
