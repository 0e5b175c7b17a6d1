"""Lévy areas given the increment: truncated Fourier series, with and without a tail.

With w = W/√h, X_k and Y_k standard normal vectors and S = Σ_{k≤n} X_k (Y_k - √2 w)ᵀ / k, every method here returns
A = h (M - Mᵀ)/(2π), M = S + tail. The tail replaces the terms beyond n by something of the right covariance; its size
is a_n = √(2 ψ₁(n + 1)), ψ₁ the trigamma function. Formulas and error constants: Mrongowius and Rößler, "On the
approximation and simulation of iterated stochastic integrals and the corresponding Lévy areas in terms of a
multidimensional Brownian motion" (2021).

Each method declares its root-mean-square error of an entry, h · coefficient(m) · n^(-exponent), and the number of terms
follows from it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ..derived import plain, sqrt
from .noise import NormalSource, Stream

_CHUNK_BYTES = 1 << 22  # the normals of one piece of the series: small enough to stay in cache between its two uses


class LevyArea(ABC):
    """A Lévy area approximation.

    Args:
        terms: length n of the series; None takes as many as the step size needs.
        order: the strong order that ``terms=None`` preserves: an error of about h^(order + 1/2) in each area.
    """

    exponent: ClassVar[float]

    def __init__(self, terms: int | None = None, *, order: float = 1.0) -> None:
        if terms is not None and (not isinstance(terms, int) or terms < 1):
            raise ValueError(f"terms is a positive integer, or None to derive it from the step size; got {terms!r}")
        if not 0.0 < order < math.inf:
            raise ValueError(f"order is the positive strong order to preserve; got {order!r}")
        self.terms = terms
        self.order = order

    @staticmethod
    @abstractmethod
    def coefficient(m: int) -> float:
        """The error constant for m Brownian motions."""

    @abstractmethod
    def _tail(self, w: Tensor, size: float, normals: NormalSource, first_row: int) -> Tensor | None:
        """The tail (particles, m, m) for w (particles, m), or None; ``size`` is a_n."""

    def num_terms(self, dt: float, m: int) -> int:
        """The length of the series at step size dt."""
        if self.terms is not None:
            return self.terms
        return max(1, math.ceil((self.coefficient(m) / dt ** (self.order - 0.5)) ** (1.0 / self.exponent)))

    def error(self, dt: float, m: int) -> float:
        """The bound on an entry's root-mean-square error at step size dt."""
        return dt * self.coefficient(m) * self.num_terms(dt, m) ** -self.exponent

    def sample(self, W: Tensor, dt: float, normals: NormalSource) -> Tensor:
        """Areas (particles, m, m) given increments W (particles, m) over a step of length dt.

        Memory beyond the result is bounded: the series is summed over pieces of particles and terms.
        """
        m = W.shape[-1]
        rows = max(1, _pairs_a_piece(W) // self.num_terms(dt, m))
        if m == 1 or rows >= len(W):
            return self.sample_piece(W, dt, normals)
        areas = W.new_empty(len(W), m, m)
        for start in range(0, len(W), rows):
            areas[start : start + rows] = self.sample_piece(W[start : start + rows], dt, normals, start)
        return areas

    def sample_piece(self, W: Tensor, dt: float, normals: NormalSource, first_row: int = 0) -> Tensor:
        """The same in one piece of particles, whatever that takes; ``first_row`` is the first one's."""
        m = W.shape[-1]
        if m == 1:  # one Brownian motion encloses no area
            return W.new_zeros(len(W), 1, 1)
        n, w = self.num_terms(plain(dt), m), W / sqrt(dt)  # how many there are, the normals drawn tell
        total = self._series(w, n, normals, first_row)
        tail = self._tail(w, math.sqrt(2.0 * _trigamma(n + 1)), normals, first_row)
        if tail is not None:
            total += tail
        return (total - total.mT).mul_(dt / (2.0 * math.pi))

    def _series(self, w: Tensor, n: int, normals: NormalSource, first_row: int) -> Tensor:
        rows, m = w.shape
        pairs = _pairs_a_piece(w)
        piece = min(n, pairs - pairs % 4)
        total = w.new_zeros(rows, m, m)
        shift = math.sqrt(2.0) * w.unsqueeze(1)
        for k in range(0, n, piece):
            count = min(piece, n - k)
            where = {"first_row": first_row, "first": k * m}
            x = normals.draw(Stream.LEVY_COSINE, w, count * m, **where).view(rows, count, m)
            y = normals.draw(Stream.LEVY_SINE, w, count * m, **where).view(rows, count, m)
            x /= torch.arange(k + 1, k + count + 1, dtype=w.dtype, device=w.device).unsqueeze(-1)
            total.baddbmm_(x.mT, y.sub_(shift))
        return total

    def __repr__(self) -> str:
        return f"{type(self).__name__}(terms={self.terms}, order={self.order})"


class FourierLevyArea(LevyArea):
    """Kloeden, Platen and Wright's truncated series: no tail. What the paper uses, with n = 3000.

    ``terms`` and ``order`` are those of LevyArea.
    """

    exponent = 0.5

    @staticmethod
    def coefficient(m: int) -> float:
        return math.sqrt(1.5) / math.pi

    def _tail(self, w: Tensor, size: float, normals: NormalSource, first_row: int) -> None:
        return None


class WiktorssonLevyArea(LevyArea):
    """Wiktorsson's (2001) tail: a Gaussian of the exact covariance of the rest, given W.

    ``terms`` and ``order`` are those of LevyArea.
    """

    exponent = 1.0

    @staticmethod
    def coefficient(m: int) -> float:
        return math.sqrt(5.0 * m / 12.0) / math.pi

    def _tail(self, w: Tensor, size: float, normals: NormalSource, first_row: int) -> Tensor:
        m = w.shape[-1]
        drawn = normals.draw(Stream.LEVY_TAIL, w, m * (m - 1) // 2, first_row=first_row)
        lower = strictly_upper(drawn * size, m).mT
        skew_times_w = ((lower - lower.mT) @ w.unsqueeze(-1)).squeeze(-1)
        weight = 1.0 + (1.0 + w.square().sum(-1, keepdim=True)).sqrt()
        return lower + (skew_times_w / weight).unsqueeze(-1) * w.unsqueeze(-2)


class MrongowiusRoesslerLevyArea(LevyArea):
    """Mrongowius and Rößler's (2021) tail: the same order as Wiktorsson's with fewer terms. The default."""

    exponent = 1.0

    @staticmethod
    def coefficient(m: int) -> float:
        return math.sqrt(m / 12.0) / math.pi

    def _tail(self, w: Tensor, size: float, normals: NormalSource, first_row: int) -> Tensor:
        m = w.shape[-1]
        drawn = normals.draw(Stream.LEVY_TAIL, w, m + m * (m - 1) // 2, first_row=first_row).mul_(size)
        psi, upper = drawn[:, :m], drawn[:, m:]
        return torch.addcmul(strictly_upper(upper, m), w.unsqueeze(-1), psi.unsqueeze(-2))


def _pairs_a_piece(W: Tensor) -> int:
    """Pairs of normal vectors drawn together."""
    return max(4, _CHUNK_BYTES // (2 * W.shape[-1] * W.element_size()))


def strictly_upper(entries: Tensor, m: int) -> Tensor:
    """The (particles, m, m) matrices with the given entries above the diagonal, row by row, and 0 elsewhere."""
    row, column = torch.triu_indices(m, m, 1, device=entries.device)
    flat = entries.new_zeros(len(entries), m * m).scatter_(1, (row * m + column).expand(len(entries), -1), entries)
    return flat.view(-1, m, m)


def _trigamma(n: int) -> float:
    """ψ₁(n): single terms up to where the asymptotic series is exact to rounding.

    In plain numbers: torch's function has half their digits, and a tensor that is made in a step binds the step's
    compiled program to one SDE.
    """
    far = max(n, 20)
    x = 1.0 / (far * far)
    series = x * (1 / 6 - x * (1 / 30 - x * (1 / 42 - x * (1 / 30 - x * 5 / 66))))
    return sum(1.0 / (k * k) for k in range(n, far)) + (1.0 + series) / far + 0.5 * x
