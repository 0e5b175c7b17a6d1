"""What is fine about a run and what is not, in words: one function for each thing looked at."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..tuning import Finding, StepBias
from ..tuning.checks import tail_shapes
from .bias import plausible
from .errors import MANY, change, critical, independent, standard_error
from .rhat import MEMORY, allowed_ratio, largest_rhat, memory, rhat_over_time

# Below this a mean is known worse than to 1/20 of a standard deviation, the bias that tuning allows by default, and
# estimates of R-hat and of effective sample sizes are themselves too noisy (Vehtari et al., 2021).
LEAST_ESS = 400.0
_MOST_CAPPED = 0.01  # as for tuning: a cap biases what it touches
_LEAST_ACCEPTED = 0.2  # random-walk chains are best at 0.23, those with gradients from 0.57 on: below, they hardly move
_HEAVY = 0.15  # of a tail's shape: from 1/4 on there are no fourth moments
_LEAST_TAIL = 20.0  # effective draws in the outer tenth
_LOST = 0.5  # the error of a bias, in standard deviations, that comes of steps which are no longer stable
_SLOW = 0.8  # what is left, at most, of a memory that falls as a run goes on to twice its length

Names = tuple[str, ...]


def precise(names: Names, ess: Tensor, spread: Tensor) -> Finding:
    """Means are known well enough; and how well standard deviations are, ``spread`` as a share of them."""
    at, widest = int(ess.nan_to_num(math.inf).argmin()), int(spread.argmax())
    least = float(ess[at])
    seen = (
        f"draws are worth {least:,.0f} independent ones or more: means are known to ± {least**-0.5:.3f} sd, standard "
        f"deviations to ± {float(spread[widest]):.1%} ({names[widest]})"
    )
    if least >= LEAST_ESS:
        return Finding(True, seen, (names[widest],))
    return Finding(
        False,
        f"the draws of {names[at]} are worth {least:,.0f} independent ones: its mean is known to {least**-0.5:.2f} sd. "
        "Take more particles or more draws",
        (names[at],),
    )


def forgotten(names: Names, theta: Tensor, superchains: Tensor | int | None) -> Finding:
    """Particles are no longer where they started, by nested R-hat.

    Many particles with starts of their own may be slow, as long as they forget within the run: of these, R-hat speaks
    against a parameter only if it also remembers where it was half of the draws ago.
    """
    draws, particles = theta.shape[:2]
    times, over_time = rhat_over_time(theta, superchains)
    rhat, allowed = over_time[-1], largest_rhat(theta, superchains)
    excess = (rhat / allowed).nan_to_num(math.inf)
    bad = excess > 1.0
    if superchains is None and particles >= MANY:
        bad &= memory(theta) > MEMORY
    fine = not bool(bad.any())
    at = int((excess if fine else torch.where(bad, excess, 0.0)).argmax())
    seen = f"nested R-hat of {names[at]} is {float(rhat[at]):.3f} for {draws} draws of {particles:,} particles"
    seen += f", and {float(allowed[at]):.3f} is allowed"
    if fine:
        groups = "particles" if superchains is None else "superchains"
        if bool(excess[at] > 1.0):
            seen += ", or more of a parameter that has forgotten where it was half of the draws ago, as this one"
        return Finding(True, f"{groups} have forgotten where they started: {seen}", (names[at],))
    if superchains is not None:
        return Finding(
            False,
            f"superchains still differ by where they started: {seen}. Run longer before draws are kept",
            (names[at],),
        )
    half = over_time[min(range(len(times)), key=lambda k: abs(times[k] - draws // 2))]
    before, now = _between(float(half[at]), max(2, draws // 2)), _between(float(rhat[at]), draws)
    if now > _SLOW * before:
        why = (
            "This does not fall as the run goes on: there are modes that they do not cross between, whose shares are "
            "those of the start, or a direction in which they hardly move. Reparametrise, or start in every mode and "
            "weigh them"
        )
    else:
        why = "This falls as the run goes on: run longer, and keep draws that are farther apart"
    return Finding(
        False,
        f"particles remember where they were, {now:.0%} of the variance is between them: {seen}. {why}",
        (names[at],),
    )


def _between(rhat: float, draws: int) -> float:
    """The share of the variance that is between particles, as R-hat shows it: the mean correlation of two draws."""
    ratio = draws * (rhat**2 - 1.0)
    return max(0.0, (ratio - 1.0) / (ratio + draws - 1.0)) if math.isfinite(ratio) else 1.0


def mixed(names: Names, found: dict[str, Tensor], draws: int, chains: int) -> Finding:
    """Rank-normalised split R-hat and effective sample sizes, by ArviZ.

    Of many particles R-hat is told and not judged: one of them need not be so long that it agrees with the others.
    """
    rhat, half = found["rhat"], draws // 2
    # ArviZ takes the 1/n off that draws which have nothing to do with one another have.
    most = max(1.01, math.sqrt((half - 1.0) / half + allowed_ratio(half, chains, len(names))))
    at = int(rhat.nan_to_num(math.inf).argmax())
    small = torch.minimum(found["ess_bulk"], found["ess_tail"]).nan_to_num(0.0)
    least = int(small.argmin())
    allowed = f", and {most:.3f} is allowed" if chains < MANY else f"; up to {most:.3f} is usual of so many chains"
    about = (names[at], names[least])
    seen = (
        f"rank-normalised split R-hat is at most {float(rhat[at]):.3f} ({names[at]}{allowed}), the least bulk or tail "
        f"ESS {float(small[least]):,.0f} ({names[least]})"
    )
    if chains < MANY and not float(rhat[at]) <= most:
        return Finding(
            False, f"{seen}: chains, or the halves of them, do not agree. Run longer, or find what parts them", about
        )
    if float(small[least]) < LEAST_ESS:
        return Finding(False, f"{seen}, and {LEAST_ESS:.0f} is asked for. Run longer", about)
    return Finding(True, seen, about)


def still(names: Names, theta: Tensor, tolerance: float) -> Finding:
    """Means and standard deviations do not move from the first quarter of the draws to the last."""
    standard = (theta - theta.mean((0, 1))) / theta.flatten(0, 1).std(0)
    moved, error = change(torch.cat((standard, 0.5 * standard.square()), -1))
    at, most, fine = _worst(moved, error, tolerance, theta.shape[1])
    kind = "mean" if at < len(names) else "standard deviation"
    seen = (
        f"means and standard deviations are the same early and late: the {kind} of {names[at % len(names)]} moved by "
        f"{float(moved[at]):+.3f} ± {float(error[at]):.3f} sd"
    )
    about = (names[at % len(names)],)
    if fine:
        return Finding(True, seen, about)
    return Finding(
        False,
        f"the {kind} of {names[at % len(names)]} moved by {float(moved[at]):+.3f} ± {float(error[at]):.3f} sd from the "
        f"first quarter of the draws to the last ({most:.0f} standard errors): the run had not arrived when draws were "
        "first kept. Give it a longer burn_in, or leave the first draws out",
        about,
    )


def energy_still(energy: Tensor, tolerance: float) -> Finding:
    """The energy (draws, particles) does not move."""
    moved, error = change(((energy - energy.mean()) / energy.std()).unsqueeze(-1))
    _, most, fine = _worst(moved, error, tolerance, energy.shape[1])
    seen = (
        f"the mean energy moved by {float(moved):+.3f} of its sd from early to late draws, {most:.1f} standard errors"
    )
    return Finding(
        fine, seen if fine else f"{seen}: the run had not arrived when draws were first kept. Run longer first"
    )


def _worst(moved: Tensor, error: Tensor, tolerance: float, units: int) -> tuple[int, float, bool]:
    """The largest change in standard errors: which, how many, and whether all are noise or too small to matter."""
    deviations = moved.abs() / error.clamp_min(torch.finfo(error.dtype).tiny)
    matters = deviations.masked_fill(moved.abs() <= tolerance, 0.0)
    fine = float(matters.max()) <= critical(len(moved), units)
    at = int(deviations.argmax() if fine else matters.argmax())
    return at, float(deviations[at]), fine


def unbiased(names: Names, bias: StepBias, tolerance: float) -> Finding | None:
    """The step size biases no mean or standard deviation beyond the tolerance; None if noise hides it."""
    off, errors = torch.cat((bias.mean, bias.sd)), torch.cat((bias.mean_error, bias.sd_error))
    at = int((off.abs() + errors).nan_to_num(math.inf).argmax())
    value, error = float(off[at]), float(errors[at])
    name, kind = names[at % len(names)], "mean" if at < len(names) else "standard deviation"
    worst = f"the {kind} of {name}, by {value:+.3f} ± {error:.3f} sd"
    if plausible(bias) <= tolerance:
        text = f"the step size {bias.step_size:.3g} biases most {worst}, and {tolerance:g} is allowed"
        return Finding(True, text, (name,))
    if error < _LOST and abs(value) < 2.0 * error:
        return None
    shorter = bias.largest_step(tolerance)
    way = f"Take a step size of {shorter:.2g} or so" if error < _LOST else "Take a much shorter one"
    text = f"the step size {bias.step_size:.3g} biases {worst}, and {tolerance:g} is allowed. {way}"
    return Finding(False, text, (name,))


def identical(x: Tensor, gradient: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Finding] | None:
    """E[g] = 0 and E[(x - x̄)g] = 1 on (draws, particles, dim): both in standard errors, the second, and a finding.

    Beyond noise, deviations are allowed that a bias within the tolerance makes of a Gaussian: that share of 1/sd, and
    twice that of 1.
    """
    units = independent(*x.shape[:2])
    if not units:
        return None
    products, scale = (x - x.mean((0, 1))) * gradient, x.flatten(0, 1).std(0)
    values = torch.cat((gradient * scale, products - 1.0), -1)
    off, error = values.mean((0, 1)), standard_error(values).clamp_min(torch.finfo(x.dtype).tiny)
    dim = x.shape[-1]
    slack = torch.cat((torch.full_like(scale, tolerance), torch.full_like(scale, 2.0 * tolerance)))
    beyond = (off.abs() - slack) / error
    deviations, worst = off / error, int(beyond.argmax())
    fine = float(beyond[worst]) <= critical(2 * dim, units)
    seen = f"E[g] = 0 and E[(x - x̄)g] = 1 hold within {float(deviations.abs().max()):.1f} standard errors"
    if not fine:
        which = "E[g] = 0" if worst < dim else "E[(x - x̄)g] = 1"
        seen = (
            f"{which} fails for coordinate {worst % dim} by {float(off[worst]):+.3f}, {float(deviations[worst]):+.1f} "
            "standard errors: the particles do not have the density's law. Run longer, or with a shorter step"
        )
    return deviations[:dim], deviations[dim:], products.mean((0, 1)), Finding(fine, seen)


def inside(outside: float) -> Finding | None:
    """All draws are where there is a density."""
    if outside == 0.0:
        return None
    return Finding(
        False,
        f"{outside:.1%} of the draws are where the density is 0 or NaN: it has an edge, that a diffusion does not see. "
        "Give its support, so that it is sampled through a bijection",
    )


def tails(names: Names, theta: Tensor, ess: Tensor) -> Finding | None:
    """Tails are so light that standard deviations mean something."""
    shape = tail_shapes(theta).amax(0)
    outer = 0.1 * ess.nan_to_num(0.0).clamp_max(theta.shape[0] * theta.shape[1])
    if float(outer.max()) < _LEAST_TAIL:
        return None
    # Two standard errors of an exponential tail's shape, by probability-weighted moments (Hosking and Wallis, 1987).
    allowed = _HEAVY + 2.0 * (4.0 / 3.0 / outer.clamp_min(1.0)).sqrt()
    excess = torch.where(outer < _LEAST_TAIL, -math.inf, shape - allowed)
    at = int(excess.argmax())
    seen = f"the heaviest tail, of {names[at]}, has the shape {float(shape[at]):.2f}"
    if float(excess[at]) <= 0.0:
        return Finding(True, f"{seen}, and {float(allowed[at]):.2f} is heavy", (names[at],))
    return Finding(
        False,
        f"{seen}, as a Student-t with {1.0 / float(shape[at]):.0f} degrees of freedom: its standard deviation hangs on "
        "a few rare draws. Read its quantiles",
        (names[at],),
    )


def uncapped(share: float) -> Finding:
    """Few kicks were cut."""
    fine = share <= _MOST_CAPPED
    seen = f"{share:.2%} of kicks were capped"
    return Finding(fine, seen if fine else f"{seen}, and {_MOST_CAPPED:.0%} biases. Reparametrise, or shorten the step")


def accepted(share: float) -> Finding:
    """Enough proposals were accepted for the chain to move."""
    fine = share >= _LEAST_ACCEPTED
    seen = f"{share:.0%} of proposals were accepted"
    return Finding(fine, seen if fine else f"{seen}: the chain hardly moves. Shorten the step")


def moving(names: Names, constant: list[int], is_read: bool) -> Finding | None:
    """Every parameter changes; one that is read may be constant by what it is, as a triangle's zeros are."""
    if not constant:
        return None
    which = ", ".join(names[k] for k in constant[:5]) + (" …" if len(constant) > 5 else "")
    if is_read and len(constant) < len(names):
        return Finding(True, f"{which} never changes, and is left out")
    text = f"{which} never changes: the chain is stuck there, or the density does not depend on it"
    return Finding(False, text, tuple(names[k] for k in constant[:5]))
