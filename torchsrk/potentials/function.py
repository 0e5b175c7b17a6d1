"""Any callable as a potential."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .base import Potential, check_dim, check_energy

Function = Callable[[Tensor], Tensor]


class FunctionPotential(Potential):
    """The energy is what a function or network returns, (..., dim) to (...): of a log density, its negative.

    Give exactly one of the two: ``FunctionPotential(energy=f)``, which is ``FunctionPotential(f)``, or
    ``FunctionPotential(log_density=log_p)``.

    Args:
        energy: a callable; an ``nn.Module`` becomes a submodule, so its parameters register here.
        dim: the dimension of x, if inputs are to be checked against it.
        log_density: a callable, up to a constant; its negative is the energy.
    """

    def __init__(
        self, energy: Function | None = None, dim: int | None = None, *, log_density: Function | None = None
    ) -> None:
        super().__init__()
        if (energy is None) is (log_density is None):
            raise TypeError("give exactly one of energy= (-log p, up to a constant) and log_density= (log p)")
        name, function = ("log_density", log_density) if energy is None else ("energy", energy)
        if not callable(function):
            what = "energies" if name == "energy" else "log densities"
            raise TypeError(f"{name} is a callable from points to {what}; got {type(function).__name__}")
        if name == "log_density" and isinstance(function, Potential):
            raise TypeError(
                f"{type(function).__name__} is a Potential, an energy: its sign is not that of a log density"
            )
        if dim is not None and (not isinstance(dim, int) or dim < 1):
            raise ValueError(f"dim is a positive integer or None; got {dim!r}")
        self.energy: Function = function if name == "energy" else Negative(function)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        if self.dim is not None:
            check_dim(x, self.dim, "this FunctionPotential")
        return check_energy(self.energy(x), x)


class Negative(nn.Module):
    """-f: an energy of a log density, and the other way. A class, so that it can be sent to another process."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return -self.function(x)
