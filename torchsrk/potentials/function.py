"""Any callable as a potential."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .base import Potential, check_dim, check_energy


class FunctionPotential(Potential):
    """The energy is what a function or network returns: (..., dim) to (...). For a log density pass its negative.

    Args:
        energy: a callable; an ``nn.Module`` becomes a submodule, so its parameters register here.
        dim: the dimension of x, if inputs are to be checked against it.
    """

    def __init__(self, energy: Callable[[Tensor], Tensor], dim: int | None = None) -> None:
        super().__init__()
        if not callable(energy):
            raise TypeError(f"energy is a callable from points to energies; got {type(energy).__name__}")
        if dim is not None and (not isinstance(dim, int) or dim < 1):
            raise ValueError(f"dim is a positive integer or None; got {dim!r}")
        self.energy = energy
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        if self.dim is not None:
            check_dim(x, self.dim, "this FunctionPotential")
        return check_energy(self.energy(x), x)
