"""What a scheme sees of the Brownian path over one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Flag, auto
from typing import Any

import torch
from torch import Tensor


class Needs(Flag):
    """What a scheme asks for over a step, any of these together: fields of an Increment.

    Attributes:
        NOTHING: nothing.
        INCREMENT: W.
        SPACE_TIME_AREA: H.
        SPACE_TIME_TIME_AREA: K.
        LEVY_AREA: A.
        BETWEEN: Z.
        UNIFORM: u.
    """

    NOTHING = 0
    INCREMENT = auto()
    SPACE_TIME_AREA = auto()
    SPACE_TIME_TIME_AREA = auto()
    LEVY_AREA = auto()
    BETWEEN = auto()
    UNIFORM = auto()


# By which of Needs a scheme asks for a part of an increment.
ASKED_BY = {
    "H": "SPACE_TIME_AREA",
    "A": "LEVY_AREA",
    "K": "SPACE_TIME_TIME_AREA",
    "Z": "BETWEEN",
    "u": "UNIFORM",
}


@dataclass(frozen=True, slots=True)
class Increment:
    """The Brownian path B over a step of length dt, and what a scheme draws beside it.

    Attributes:
        dt: the length of the step.
        W: the increment, (..., brownian), variance dt.
        H: the space-time area (1/dt)∫(B_s - (s/dt)W)ds, (..., brownian), variance dt/12, independent of W.
        A: the Lévy area A_ij = ½∫(B_i dB_j - B_j dB_i), (..., brownian, brownian), skew.
        K: the space-time-time area (1/dt²)∫(B_s - (s/dt)W)(dt/2 - s)ds, (..., brownian), variance dt/720, independent
            of W and H.
        Z: standard normals (..., brownian) independent of W, H and K, for what those leave open of the path within.
        u: uniform on (0, 1), (..., 1): one number a particle, independent of the path.
    """

    dt: float
    W: Tensor
    H: Tensor | None = None
    A: Tensor | None = None
    K: Tensor | None = None
    Z: Tensor | None = None
    u: Tensor | None = None

    @staticmethod
    def joined(increments: Sequence[Increment], copies: int = 1) -> Increment:
        """The increments of several runs of particles as one, all of them so many times over."""
        return Increment(increments[0].dt, **_put_together(increments, lambda given: torch.cat(given * copies)))

    @staticmethod
    def beside(increments: Sequence[Increment]) -> Increment:
        """Increments of steps that follow one another as one, side by side in the last dimension."""
        parts = _put_together(increments, lambda given: torch.cat(given, -1))
        return Increment(len(increments) * increments[0].dt, **parts)

    def apart(self, count: int) -> list[Increment]:
        """The increments of so many steps that stand side by side in this one."""
        given = {field.name: getattr(self, field.name) for field in fields(Increment)[1:]}
        chunks = {name: part.chunk(count, -1) for name, part in given.items() if part is not None}
        return [
            Increment(self.dt / count, **{name: parts[number] for name, parts in chunks.items()})
            for number in range(count)
        ]

    def then(self, later: Increment) -> Increment:
        """The path over this step and the next, of the same length: what a step twice as long sees of it."""
        if self.dt != later.dt:
            raise ValueError(f"steps of one length are put together; got {self.dt} and {later.dt}")
        if self.Z is not None or self.u is not None:
            raise ValueError("what is drawn beside the path (Z, u) is no part of it, and can't be put together")
        parts: dict[str, Tensor | None] = {}
        if self.H is not None and later.H is not None:
            parts["H"] = 0.5 * (self.H + later.H) + 0.25 * (self.W - later.W)
        if self.K is not None and later.K is not None:
            assert self.H is not None
            assert later.H is not None
            parts["K"] = 0.25 * (self.K + later.K) + 0.125 * (self.H - later.H)
        if self.A is not None and later.A is not None:
            outer = self.W.unsqueeze(-1) * later.W.unsqueeze(-2)
            parts["A"] = self.A + later.A + 0.5 * (outer - outer.mT)
        return Increment(2.0 * self.dt, self.W + later.W, **parts)

    def iterated_integrals(self) -> Tensor:
        """I_(l,i) = ∫∫ dB_l dB_i = (W_l W_i - dt δ_li)/2 + A_li, (..., brownian, brownian)."""
        if self.A is None:
            raise ValueError("this increment carries no Lévy area: ask for Needs.LEVY_AREA")
        outer = self.W.unsqueeze(-1) * self.W.unsqueeze(-2)
        identity = torch.eye(self.W.shape[-1], dtype=self.W.dtype, device=self.W.device)
        return torch.add(self.A, torch.sub(outer, identity, alpha=self.dt), alpha=0.5)

    def diagonal_integrals(self) -> Tensor:
        """I_(i,i) = (W_i² - dt)/2, (..., brownian): all that commutative noise needs."""
        return 0.5 * (self.W.square() - self.dt)


def asked_for(part: Tensor | None) -> Tensor:
    """A part of an increment, or one clear error for one that was not drawn."""
    if part is None:
        raise ValueError(
            "this part of the increment is None, as the scheme did not ask for it: needs = Needs.SPACE_TIME_AREA "
            "asks for increment.H, SPACE_TIME_TIME_AREA for K, LEVY_AREA for A, BETWEEN for Z, UNIFORM for u; several "
            "are asked for as Needs.SPACE_TIME_AREA | Needs.UNIFORM"
        )
    return part


def _put_together(increments: Sequence[Increment], join: Callable[[list[Tensor]], Tensor]) -> dict[str, Any]:
    """Each part that the increments have, joined."""
    parts: dict[str, Any] = {}
    for field in fields(Increment)[1:]:
        given = [getattr(increment, field.name) for increment in increments]
        parts[field.name] = None if given[0] is None else join(given)
    return parts
