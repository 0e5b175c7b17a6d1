"""Any scheme on the path of shorter steps."""

from __future__ import annotations

from torch import Tensor

from ..brownian.increment import Increment
from ..sde.base import BaseSDE, Normals, Time
from .base import Integrator
from .wrapped import Wrapped


class Composed(Wrapped):
    """X' is that of another scheme, by the increment of a step that is composed of those of ``substeps`` shorter ones.

    So a run with a step size h and one with 2h or 4h follow the same path, and what differs between them is the step's
    doing. Its law is the scheme's own.

    Args:
        scheme: one whose increments can be composed.
        substeps: how many shorter steps one step is made of, a power of two.
    """

    def __init__(self, scheme: Integrator, substeps: int) -> None:
        super().__init__(scheme)
        if isinstance(substeps, bool) or not isinstance(substeps, int) or substeps < 1 or substeps & (substeps - 1):
            raise ValueError(f"substeps is a power of two; got {substeps!r}")
        if scheme.substeps != 1:
            raise ValueError(f"{scheme} is composed of shorter steps already")
        self.substeps = substeps

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        return self.scheme.init(sde, t, x, dt, normals)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        return self.scheme.step(sde, t, state, self._whole(sde, increment))

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        return self.scheme.position(sde, t, state, None if increment is None else self._whole(sde, increment))

    def _whole(self, sde: BaseSDE, increment: Increment) -> Increment:
        parts = increment.apart(self.substeps)
        while len(parts) > 1:
            parts = [self.scheme.compose(sde, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]
