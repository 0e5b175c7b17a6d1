"""One Brownian path that a coarse scheme and a fine reference can both be driven by, areas included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .draws import uniform
from .increment import Increment, Needs
from .levy_area import strictly_upper
from .noise import Stream, fill_normal

_CHUNK_ELEMENTS = 1 << 22  # entries of W held at once while an area is composed


class BrownianPath:
    """A path on [t0, t1] that can be asked again, over any cells of its finest grid, and answers consistently.

    W and the space-time area come from torchsde's BrownianInterval. Lévy areas do not: torchsde draws a fresh area for
    every query, of the wrong variance, so there A of an interval is not composed of the areas of its halves. Here the
    area of a finest cell is drawn once, with the exact mean and covariance given that cell's W and H, and the area of
    a longer interval is composed from its cells by Chen's relation,

        A[s,u] = A[s,t] + A[t,u] + ½(W[s,t] ⊗ W[t,u] - W[t,u] ⊗ W[s,t]).

    Args:
        shape: (..., brownian).
        num_steps: number of cells of the finest grid.
        seed: the path is a function of (seed, shape, dtype, grid), whatever is asked in whatever order.
        t0, t1: the ends of the path.
        dtype, device: of the increments.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        num_steps: int,
        seed: int,
        t0: float = 0.0,
        t1: float = 1.0,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        from torchsde import BrownianInterval  # loaded when used: it is slow to import

        if len(shape) < 1 or any(size < 1 for size in shape):
            raise ValueError(f"shape is (..., brownian) with positive sizes; got {tuple(shape)}")
        if num_steps < 1 or not t0 < t1:
            raise ValueError(f"a path needs t0 < t1 and num_steps >= 1; got [{t0}, {t1}] and {num_steps}")
        self.shape = tuple(shape)
        self.num_steps = num_steps
        self.seed = seed
        self.t0, self.t1 = float(t0), float(t1)
        self.dtype, self.device = dtype, torch.device(device)
        self.dt = (self.t1 - self.t0) / num_steps
        self._particles = math.prod(self.shape[:-1])
        self._times = [self.t0 + k * self.dt for k in range(num_steps)] + [self.t1]
        self.interval = BrownianInterval(
            self.t0,
            self.t1,
            size=(self._particles, self.shape[-1]),
            dtype=dtype,
            device=self.device,
            entropy=seed,
            levy_area_approximation="space-time",
            cache_size=128,
        )
        self._plant(0, num_steps)

    def increment(self, step: int, t: float, dt: float, needs: Needs) -> Increment:
        """The increment over [t, t + dt], which must be cells of the finest grid; ``step`` plays no part."""
        first, last = self._cell(t), self._cell(t + dt)
        if not 0 <= first < last <= self.num_steps:
            raise ValueError(f"[{t}, {t + dt}] is not inside the path's interval [{self.t0}, {self.t1}]")
        length = self._times[last] - self._times[first]
        W, H = self._increment_and_area(first, last)
        shape, m = self.shape, self.shape[-1]
        return Increment(
            length,
            W.view(shape),
            H=H.view(shape) if needs & ~Needs.INCREMENT else None,
            K=self._time_area(first, last).view(shape) if Needs.SPACE_TIME_TIME_AREA in needs else None,
            A=self._levy_area(first, last).view(*shape, m) if Needs.LEVY_AREA in needs else None,
            Z=self._beside(Stream.BETWEEN, first, last, m) if Needs.BETWEEN in needs else None,
            u=uniform(self._beside(Stream.UNIFORM, first, last, 1)) if Needs.UNIFORM in needs else None,
        )

    def increments(self, num_steps: int, needs: Needs) -> Iterator[Increment]:
        """The increments of a regular grid of ``num_steps`` steps, a divisor of the finest."""
        if num_steps < 1 or self.num_steps % num_steps:
            raise ValueError(f"{num_steps} steps do not divide the path's finest grid of {self.num_steps}")
        dt = (self.t1 - self.t0) / num_steps
        return (self.increment(k, self.t0 + k * dt, dt, needs) for k in range(num_steps))

    def _plant(self, first: int, last: int) -> None:
        # BrownianInterval splits where it is first asked, so its path depends on the order of queries. Splitting it in
        # halves down to the finest cells now makes it depend on the seed alone, and every query logarithmic.
        if last - first > 1:
            middle = (first + last) // 2
            self.interval(self._times[first], self._times[middle])
            self._plant(first, middle)
            self._plant(middle, last)

    def _cell(self, t: float) -> int:
        position = (t - self.t0) / self.dt
        if abs(position - round(position)) > 1e-6:
            raise ValueError(
                f"time {t} is not on the path's grid of {self.num_steps} cells of {self.dt} from {self.t0}: take a "
                "step size that is a multiple of the cell, or a path with more steps"
            )
        return round(position)

    def _increment_and_area(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        start, end = self._times[first], self._times[last]
        W, U = self.interval(start, end, return_U=True)
        return W, U / (end - start) - 0.5 * W

    def _time_area(self, first: int, last: int) -> Tensor:
        """K over some cells, composed of each cell's W, H and K."""
        h, m = (last - first) * self.dt, self.shape[-1]
        total = torch.zeros(self._particles, m, dtype=self.dtype, device=self.device)
        travelled = torch.zeros_like(total)
        piece = max(1, _CHUNK_ELEMENTS // (self._particles * m))
        for start in range(first, last, piece):
            cells = torch.arange(start, min(start + piece, last), dtype=self.dtype, device=self.device)
            W, H = (
                torch.stack(p) for p in zip(*(self._increment_and_area(int(k), int(k) + 1) for k in cells), strict=True)
            )
            K = fill_normal(
                torch.empty_like(W),
                seed=self.seed,
                stream=Stream.SPACE_TIME_TIME_AREA,
                step=start,
                scale=math.sqrt(self.dt / 720.0),
            )
            # ∫B_s(h/2 - s)ds over a cell, in which B is where it was, plus a line, plus a bridge.
            until_middle = (0.5 * h - (cells - first) * self.dt).view(-1, 1, 1)
            to_centre = until_middle - 0.5 * self.dt
            before = travelled + W.cumsum(0) - W
            total += (self.dt * to_centre * (before + H)).sum(0) + self.dt**2 * K.sum(0)
            total += (self.dt * (0.5 * until_middle - self.dt / 3.0) * W).sum(0)
            travelled = travelled + W.sum(0)
        return total / h**2 + travelled / 12.0

    def _beside(self, stream: Stream, first: int, last: int, components: int) -> Tensor:
        """Standard normals for what is no function of the path, (..., components)."""
        out = torch.empty(self._particles, components, dtype=self.dtype, device=self.device)
        step = first * (self.num_steps + 1) + last
        return fill_normal(out, seed=self.seed, stream=stream, step=step).view(*self.shape[:-1], components)

    def _levy_area(self, first: int, last: int) -> Tensor:
        m = self.shape[-1]
        total = torch.zeros(self._particles, m, m, dtype=self.dtype, device=self.device)
        if m == 1:
            return total
        travelled = torch.zeros(1, self._particles, m, dtype=self.dtype, device=self.device)
        piece = max(1, _CHUNK_ELEMENTS // (self._particles * m))
        for start in range(first, last, piece):
            end = min(start + piece, last)
            cells = [self._increment_and_area(k, k + 1) for k in range(start, end)]
            W, H = (torch.stack(parts) for parts in zip(*cells, strict=True))
            # Chen over the cells and E[A | W, H] = H ⊗ W - W ⊗ H within each: one product for both.
            before = torch.cat((travelled, travelled + W.cumsum(0)))
            total.baddbmm_((H + 0.5 * before[:-1]).permute(1, 2, 0), W.transpose(0, 1))
            total += self._rest_of_cells(start, H)
            travelled = before[-1:]
        return total - total.mT

    def _rest_of_cells(self, first: int, H: Tensor) -> Tensor:
        """Σ over cells of what W and H leave open in A, before antisymmetrisation; H is (cells, particles, m).

        Given W and H that rest has mean 0 and the covariance of √(dt/5)(H ⊗ ψ - ψ ⊗ H) + √(dt²/20) G with ψ normal
        and G skew normal: from the Fourier series, with Σ1/k² = π²/6 and Σ1/k⁴ = π⁴/90.
        """
        cells, particles, m = H.shape
        drawn = H.new_empty(cells, particles, m + m * (m - 1) // 2)
        fill_normal(drawn, seed=self.seed, stream=Stream.PATH_AREA, step=first)
        psi, upper = drawn[..., :m], drawn[..., m:].sum(0)
        mixed = torch.bmm(H.permute(1, 2, 0), psi.transpose(0, 1)) * math.sqrt(self.dt / 5.0)
        return mixed + strictly_upper(upper, m) * (self.dt / math.sqrt(20.0))
