"""The table of posteriors in words and numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from samplers import NUMPYRO, NUMPYRO_PARALLEL, PYRO, TORCHSRK, TORCHSRK_EAGER
from text import digits, table
from trial import BIAS, MEAN_WITHIN, SD_WITHIN

SLOW = 10.0  # a later call that takes longer, in seconds, is the last


def render(rows: list[dict]) -> str:
    """The markdown from as many rows as there are."""
    limit = max((row["limit"] for row in rows if not row["failed"]), default=0.0)
    rounds = max((row["rounds"] for row in rows if not row["failed"]), default=0)
    return "\n".join([_text(rounds, limit), *(_section(row) for row in rows), _notes(rows)])


def _text(rounds: int, limit: float) -> str:
    return f"""From a log density to its draws, with whatever tuning a sampler has, in float64 on all cores. torchsrk:
`tune` with nothing given but a seed, then ten draws of each of its 1000 particles. NUTS: 4 chains, 1000 draws after
1000 of warm-up (nutpie: after its own number; Pyro, which draws chains one after another on this machine: one chain).
MCLMC: 4 chains of 10,000 steps. MEADS and ChEES: 128 chains, 1000 draws after 1000 of warm-up. LAPS: 1000 chains, at
most 500 unadjusted steps and 500 gradients of adjusted ones; the end is the draw. All start uniform on (-2, 2).
numpyro compiles several chains anew in every `MCMC.run`; here its warm-up and its runs are wrapped in a `jax.jit`, so
that only the first call does. LAPS compiles in every call; torchsrk tunes eagerly, and "compiled" are its draws, for
every plan anew.

Every contender has a process for each posterior. Its first call there compiles what it compiles, with empty caches;
then come {rounds} rounds, in turns, each call with another seed, of which medians are given. A contender whose call in
a round takes more than {SLOW:g} s has no other, and no call goes on for much longer than {limit:g} s; one that does so
at once stands for the rounds.

- gradients: a chain, by the sampler's own statistics, with the warm-up.
- until b² < {BIAS:g}: gradients a chain after which (E x² - its estimate)² / Var x², the largest over coordinates,
  stays below {BIAS:g} until the end of the run. torchsrk and LAPS: the estimate is the mean over 1000 particles at
  one time, looked at along the warm-up as well (torchsrk: after every window of it, at its end, and at every draw;
  LAPS: after every step and every adjusted sample). Others: the mean over all draws of all chains since the warm-up,
  so that theirs is never less than the warm-up.
- errors of means, in standard deviations, and of standard deviations, in percent: the worst of all coordinates, in
  the run described above.
- ESS a second: of that run, for means and for second moments, the smallest of all coordinates, over the seconds of a
  later call with its warm-up. By ArviZ; for torchsrk from the correlations between a particle's draws, taken over
  particles; LAPS's chains count as one draw each. It does not see a bias.
- accurate: seconds from the call until all means are within {MEAN_WITHIN:g} standard deviations and all standard
  deviations within {100 * SD_WITHIN:g} %: those of the shortest run that is, warm-up included. It is looked at
  whenever draws have doubled (torchsrk: after 1, 2, 4, 10, 20, ... draws; NUTS: 125, 250, ...; MCLMC: 1250, ...;
  LAPS: with 1000, 2000, ... chains). nutpie and LAPS can't go on and begin anew for more.
- times torchsrk: that over the same of torchsrk's sooner form, later calls.
"""


def _section(row: dict) -> str:
    title = f"### {row['model'][0].upper()}{row['model'][1:]}, {row['dim']} dimensions\n"
    if row["failed"]:
        return f"{title}\nNot measured: {row['failed']}\n"
    known = row["reference"]
    ours = [_median(_later(row["outcomes"][name]), "accurate") for name in (TORCHSRK, TORCHSRK_EAGER)]
    best = min((value for value in ours if value is not None), default=None)
    lines = [_line(name, outcome, best) for name, outcome in row["outcomes"].items()]
    header = ["contender", "first call, s", "later, s", "gradients", f"until b² < {BIAS:g}", "means", "sds, %"]
    header += ["ESS a second", "accurate at first, s", "accurate later, s", "times torchsrk"]
    return f"""{title}
The reference is NUTS, {known["draws"]} draws: its worst standard errors are {known["mean_error"]:.4f} standard
deviations for means and {100 * known["sd_error"]:.2f} % for standard deviations. The density in torch and that in jax
differ by {row["twins"]:.0e}.

{table(header, lines)}"""


def _line(name: str, outcome: dict, best: float | None) -> list[str]:
    calls, later = outcome["calls"], _later(outcome)
    if outcome["failed"] or not calls:
        return [name, f"failed: {outcome['failed'][:80]}".replace("|", "/"), *[""] * 9]
    first = calls[0]
    seconds, accurate = _median(later, "seconds"), _median(later, "accurate")
    below = _median(calls, "below")
    ess = _median_of([call["ess"] / call["seconds"] for call in later if call["ess"] is not None])
    sds = _median(later, "sd_error")
    return [
        name,
        _number(first["seconds"], first),
        _number(seconds, first),
        _number(_median(later, "gradients")),
        _number(below, missing="not reached"),
        _number(_median(later, "mean_error")),
        _number(None if sds is None else 100 * sds),
        _number(ess),
        _number(first["accurate"], first),
        _number(accurate, first),
        _times(accurate, best, first),
    ]


def _later(outcome: dict) -> list[dict]:
    """The calls of the rounds, or the first one if it was too slow for them."""
    return outcome["calls"][1:] or outcome["calls"]


def _median(calls: Sequence[dict], name: str) -> float | None:
    return _median_of([call[name] for call in calls])


def _median_of(values: Sequence[float | None]) -> float | None:
    """The median, to which one that was never reached counts as infinite."""
    if not values:
        return None
    middle = statistics.median(float("inf") if value is None else value for value in values)
    return None if middle == float("inf") else middle


def _number(value: float | None, call: dict | None = None, missing: str = "-") -> str:
    if value is not None:
        return digits(value)
    return f"no: {call['limit']}" if call and call["limit"] else missing


def _times(accurate: float | None, best: float | None, call: dict) -> str:
    if best is None:
        return "-"
    return digits(accurate / best) if accurate is not None else "-"


def _notes(rows: list[dict]) -> str:
    """What the samplers say of their own draws, and the ratios that matter most."""
    lines = []
    for row in rows:
        for name, outcome in row["outcomes"].items():
            said = [call["note"] for call in outcome["calls"] if call["note"]]
            if said:
                lines.append(f"- {name} on {row['model']}, {len(said)} of {len(outcome['calls'])} calls: {said[0]}")
    notes = "What samplers say of their draws:\n\n" + "\n".join(lines) + "\n" if lines else ""
    return notes + _summary([row for row in rows if not row["failed"]])


def _summary(rows: list[dict]) -> str:
    def soonest(row: dict, names: Sequence[str], pick: Callable[[dict], list[dict]]) -> float | None:
        found = [_median(pick(row["outcomes"][name]), "accurate") for name in names if name in row["outcomes"]]
        return min((value for value in found if value is not None), default=None)

    lines = []
    for row in rows:
        line = [row["model"]]
        for pick in (lambda outcome: outcome["calls"][:1], _later):
            ours = soonest(row, (TORCHSRK, TORCHSRK_EAGER), pick)
            for names in ((NUMPYRO, NUMPYRO_PARALLEL), (PYRO,)):
                theirs = soonest(row, names, pick)
                if ours is None:
                    line.append("-")
                else:
                    line.append(digits(theirs / ours) if theirs else f"> {digits(row['limit'] / ours)}")
        lines.append(line)
    header = ["posterior", *(f"{name}, {when}" for when in ("first call", "later") for name in ("numpyro", "Pyro"))]
    return f"""
How many times sooner the sooner form of torchsrk is accurate than the sooner form of numpyro, and than Pyro:

{table(header, lines)}"""
