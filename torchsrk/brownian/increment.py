"""What a scheme sees of the Brownian path over one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor


class Needs(Enum):
    """How much of the Brownian path a scheme asks for."""

    INCREMENT = "increment"
    SPACE_TIME_AREA = "space-time area"
    LEVY_AREA = "Lévy area"


@dataclass(frozen=True, slots=True)
class Increment:
    """The path B over a step of length dt.

    Attributes:
        dt: the length of the step.
        W: the increment, (..., brownian), variance dt.
        H: the space-time area (1/dt)∫(B_s - B_0)ds - W/2, (..., brownian), variance dt/12, independent of W.
        A: the Lévy area A_ij = ½∫(B_i dB_j - B_j dB_i), (..., brownian, brownian), skew.
    """

    dt: float
    W: Tensor
    H: Tensor | None = None
    A: Tensor | None = None

    @staticmethod
    def joined(increments: Sequence[Increment], copies: int = 1) -> Increment:
        """The increments of several runs of particles as one, all of them so many times over."""

        def together(parts: list[Tensor | None]) -> Tensor | None:
            given = [part for part in parts if part is not None]
            return torch.cat(given * copies) if given else None

        W = together([increment.W for increment in increments])
        assert W is not None
        H, A = together([i.H for i in increments]), together([i.A for i in increments])
        return Increment(increments[0].dt, W, H, A)

    def iterated_integrals(self) -> Tensor:
        """I_(l,i) = ∫∫ dB_l dB_i = (W_l W_i - dt δ_li)/2 + A_li, (..., brownian, brownian)."""
        if self.A is None:
            raise ValueError("this increment carries no Lévy area: ask for Needs.LEVY_AREA")
        outer = self.W.unsqueeze(-1) * self.W.unsqueeze(-2)
        identity = torch.eye(self.W.shape[-1], dtype=self.W.dtype, device=self.W.device)
        return torch.add(self.A, outer - self.dt * identity, alpha=0.5)

    def diagonal_integrals(self) -> Tensor:
        """I_(i,i) = (W_i² - dt)/2, (..., brownian): all that commutative noise needs."""
        return 0.5 * (self.W.square() - self.dt)
