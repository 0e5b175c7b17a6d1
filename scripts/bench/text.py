"""Numbers and tables as markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: Sequence[float], unit: float = 1.0) -> str:
    """The median with its quartiles, which stay on one line of a narrow column."""
    low, middle, high = (digits(value * unit) for value in quartiles(values))
    return f"{middle} ({low}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{high})"


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratios(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """Round by round: what disturbs a round disturbs both."""
    return [a / b for a, b in zip(slow, fast, strict=False)]


def per_particle_step(outcome: dict, particles: int) -> str:
    """Nanoseconds a particle and step, or why there are none."""
    return failure(outcome) or spread(outcome["seconds"], 1e9 / particles)


def failure(outcome: dict) -> str:
    """Why a contender has no number; "" if it has."""
    return f"failed: {outcome['failed'][:80]}".replace("|", "/") if outcome["failed"] else ""


def ratio(slow: dict, fast: dict) -> str:
    """How many times longer, as the median over rounds with its quartiles; "-" where one failed."""
    return "-" if slow["failed"] or fast["failed"] else spread(ratios(slow["seconds"], fast["seconds"]))


def same_law(outcomes: Iterable[dict]) -> str:
    """Whether all that ran have the reference's second moment; by how many standard errors they miss it, if not.

    Four standard errors: in a hundred comparisons that a right contender misses any has a chance of less than 1 %.
    """
    distances = [outcome["same_law"] for outcome in outcomes if outcome["same_law"] is not None]
    if not distances:
        return "-"
    worst = max(distances, key=abs)
    return "yes" if abs(worst) <= 4.0 else f"NO, {worst:+.1f} s.e."
