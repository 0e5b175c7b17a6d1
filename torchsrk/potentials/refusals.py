"""Arguments that torch's distributions refuse within a density, in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_SAID_BY_TORCH = ("to satisfy the constraint", "to be within the support")


@contextmanager
def told_of_support() -> Iterator[None]:
    """What fails within, with a word on supports if it is an argument that one of torch's distributions refused."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if _HINT in text or not any(said in text for said in _SAID_BY_TORCH):
            raise
        raise ValueError(f"{text}\n{_HINT}") from error


_HINT = (
    "A distribution in this density refused its arguments. Particles go to all of ℝⁿ unless they are held in a "
    "support. Give DiffusionDistribution support= (constraints.positive for a scale), and tune an "
    "UnconstrainedPotential. With a support, look for NaN in the data, and at the sign: energies given as log "
    "densities drive particles to an edge. Of values that rounding alone takes there, validate_args=False in the "
    "density's distributions takes them as they are"
)
