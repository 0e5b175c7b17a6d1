"""The error of a scheme's own invariant law: W2² to the mixture, against step size and dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..sampling import NonFiniteStateError, sample
from ..sde import Langevin
from . import plots
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import ConfigError, Count, Dimension, OneOf, Range, check_known
from .estimates import Method, corrected_w2_squared, mean_and_error
from .first_look import draw_first_look
from .fits import fit_power, student_95
from .laws import SCHEMES, invariant_error, linear_step
from .scheme_moments import scheme_names
from .targets import FAR, SEPARATION, mixture

_LEAST_LAWS = 7  # of a curve
_RIGHT, _REFINED = 0.01, 6  # what a curve through laws may be wrong by, and how often gaps are halved
_LABEL = 0.06  # the width of a label on the axis, as a share of it


@dataclass(frozen=True)
class Panel:
    """Errors against the step size, in one dimension; or against the dimension, at one step size."""

    against: Literal["step_size", "dim"]
    dims: tuple[Dimension, ...]
    step_sizes: tuple[Annotated[float, Range(1e-4, 1e3)], ...]
    fit: bool = False  # a power law to three points or more

    def __post_init__(self) -> None:
        varied, fixed = ("step_sizes", "dims") if self.against == "step_size" else ("dims", "step_sizes")
        if len(getattr(self, fixed)) > 1:
            raise ConfigError(f"{fixed}: a panel against {self.against} has one of them; give another panel for more")
        if sorted(getattr(self, varied)) != list(getattr(self, varied)):
            raise ConfigError(f"{varied}: expected rising ones; got {list(getattr(self, varied))}")
        if self.fit and len(getattr(self, varied)) < 3:
            raise ConfigError(f"fit: needs three {varied} or more")

    def cases(self) -> list[tuple[int, float]]:
        return list(product(self.dims, self.step_sizes))


@dataclass(frozen=True)
class Settings:
    """Every scheme at every point of every panel."""

    panels: tuple[Panel, ...]
    particles: Count  # of a cloud; an estimate compares two clouds with two of exact draws
    repeats: Annotated[int, Range(2, 10**6)]  # independent estimates, for the standard error
    time: Annotated[float, Range(1e-3, 1e6)] = 20.0  # that a chain is given to reach its own law, from exact draws
    schemes: tuple[Annotated[str, OneOf(scheme_names)], ...] = SCHEMES
    method: Method = "exact"  # of the estimates, see torchsrk.metrics
    look_at: Annotated[float, Range(1e-4, 1e3)] | None = None  # a step size of the first panel: draw its particles

    def __post_init__(self) -> None:
        check_known(self.schemes, SCHEMES, key="schemes")
        if self.look_at is not None and (
            self.schemes != SCHEMES or self.look_at not in self.panels[0].step_sizes or len(self.panels) > 1
        ):
            raise ConfigError(
                f"look_at: a step size of the only panel, {list(self.panels[0].step_sizes)}, with both schemes; got "
                f"{self.look_at:g}"
            )
        if self.repeats < 3 and any(panel.fit for panel in self.panels):
            raise ConfigError(f"repeats: a fit needs three or more; got {self.repeats}")

    def cases(self) -> dict[str, tuple[str, int, float]]:
        """Scheme, dimension and step size of every unit, each once."""
        points = (point for panel in self.panels for point in panel.cases())
        return by_name((_unit(scheme, *point), (scheme, *point)) for point, scheme in product(points, self.schemes))


def _unit(scheme: str, dim: int, h: float) -> str:
    return f"{scheme}-d{dim}-h{h:g}"


def plan(settings: Settings) -> dict[str, tuple[str, int, float]]:
    return settings.cases()


def measure(settings: Settings, case: tuple[str, int, float], context: Context) -> Result:
    """Estimates of W2², one a repeat, and the first cloud of particles.

    Schemes and step sizes share seeds, so that their estimates make pairs.
    """
    scheme, dim, h = case
    target = mixture(dim, context)
    sde = Langevin(target)
    estimates: list[float] = []
    first = None
    for repeat in context.bar(range(settings.repeats), unit="repeat"):
        draws = target.sample((4 * settings.particles,), seed=derive_seed(context.seed, repeat))
        start, exact = draws.split(2 * settings.particles)
        try:
            run = sample(
                sde,
                start,
                integrator=scheme,
                step_size=h,
                num_steps=math.ceil(settings.time / h),
                seed=derive_seed(context.seed + 1, repeat),
                compile=context.compile,
            )
        except NonFiniteStateError:
            run = None
        if run is None or float(run.final.abs().max()) > FAR:
            return {"estimates": torch.full((settings.repeats,), math.inf, dtype=torch.float64)}
        first = run.final[: settings.particles].cpu() if first is None else first
        estimates.append(float(corrected_w2_squared(run.final, exact, settings.method)))
    return {"estimates": torch.tensor(estimates, dtype=torch.float64), "samples": first}


def law_error(scheme: str, dim: float, h: float) -> float:
    """W2² of the law that the scheme keeps on the mixture."""
    return invariant_error(scheme, separation=SEPARATION, dim=dim, step_size=h)


def gaussian_error(scheme: str, dim: float, h: float) -> float:
    """W2² on a standard normal, where both schemes are linear and keep a Gaussian law of known variance."""
    factor, noise = linear_step(scheme, step_size=h, curvature=1.0)
    return dim * (math.sqrt(noise / (1 - factor**2)) - 1) ** 2 if abs(factor) < 1 else math.inf


THEORIES = {"law": law_error, "gaussian_theory": gaussian_error}


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    method = {"method": settings.method}
    rows = [_row(*case, results[unit]["estimates"]) | method for unit, case in settings.cases().items()]
    found = [finding for panel in settings.panels for finding in findings(panel, rows, results)]
    curves = [(panel, scheme) for panel in settings.panels for scheme in settings.schemes]
    fitted = [exponents(panel, scheme, results) for panel, scheme in curves if panel.fit]
    return Conclusion(
        tables={"errors": rows, **({"exponents": fitted} if fitted else {})},
        figures={**_first_look(settings, rows, results), "asymptotic": partial(draw, settings, rows, fitted)},
        findings=found,
        notes=[*map(_exponent_note, fitted), *(share(panel, curve(panel, scheme, rows)) for panel, scheme in curves)],
    )


def _first_look(settings: Settings, rows: list[Row], results: Mapping[str, Result]) -> dict[str, Callable[[Any], None]]:
    if settings.look_at is None:
        return {}
    dim = settings.panels[0].dims[0]
    found = {scheme: results[_unit(scheme, dim, settings.look_at)] for scheme in settings.schemes}
    clouds: dict[str, Tensor] = {scheme: result["samples"] for scheme, result in found.items() if "samples" in result}
    laws = {scheme: law_curve(settings.panels[0], scheme) for scheme in clouds}
    look = partial(draw_first_look, rows, clouds, laws, dim=dim, step_size=settings.look_at)
    return {"first_look": lambda file: look(file=file)}


def _row(scheme: str, dim: int, h: float, estimates: Tensor) -> Row:
    mean, error = mean_and_error(estimates)
    where = {"scheme": scheme, "dim": dim, "step_size": h, "w2_squared": mean, "standard_error": error}
    return where | {name: theory(scheme, dim, h) for name, theory in THEORIES.items()}


def findings(panel: Panel, rows: list[Row], results: Mapping[str, Result]) -> list[Finding]:
    """SRK-LD below Euler-Maruyama at all points, and far below at the headline's."""
    em, srk = (curve(panel, scheme, rows) for scheme in ("em", "srk-ld"))
    if not em or not srk:
        return []
    gaps = [
        results[_unit("em", *case)]["estimates"] - results[_unit("srk-ld", *case)]["estimates"]
        for case in panel.cases()
    ]
    below = sum(float(gap.mean()) > 0 for gap in gaps)
    wide = student_95(len(gaps[0]) - 1)
    sure = [(float(gap.mean()), wide * mean_and_error(gap)[1]) for gap in gaps if gap.isfinite().all()]
    clear = sum(mean > margin for mean, margin in sure)
    known = [(a["law"], b["law"]) for a, b in zip(em, srk, strict=True) if math.isfinite(b["law"])]
    laws = sum(b < a for a, b in known)
    text = (
        f"{_where(panel)}: SRK-LD's W2² is below Euler-Maruyama's at {below} of {len(em)} points, at {clear} of them "
        f"beyond the 95 % interval of the difference; that of its exact law is at {laws} of {len(known)}"
    )
    head = _headline(panel, em)
    last = (
        f"{_where(panel)}, {panel.against} {em[head][panel.against]:g}: W2² is {_shown(em[head])} with Euler-Maruyama "
        f"({em[head]['law']:.3g} by its law), and less than a fifth of it, {_shown(srk[head])}, with SRK-LD "
        f"({srk[head]['law']:.3g})"
    )
    return [
        Finding(text, below == len(em) and laws == len(known)),
        Finding(
            last, em[head]["w2_squared"] - wide * em[head]["standard_error"] > 5 * max(0.0, srk[head]["w2_squared"])
        ),
    ]


def _headline(panel: Panel, rows: list[Row]) -> int:
    """The row to lead with: h = 1 where it is there, else the last.

    At h = 4/3 linear theory's error of SRK-LD happens to be 0, and what is found near it says little of other steps.
    """
    steps = [row["step_size"] for row in rows]
    return steps.index(1.0) if panel.against == "step_size" and 1.0 in steps else len(rows) - 1


def exponents(panel: Panel, scheme: str, results: Mapping[str, Result]) -> Row:
    """The power of the step size or the dimension that W2² goes with, and that of the theories at the same points."""
    cases = [
        case
        for case in panel.cases()
        if results[_unit(scheme, *case)]["estimates"].isfinite().all() and math.isfinite(law_error(scheme, *case))
    ]
    where = {"against": panel.against, "at": _where(panel), "scheme": scheme, "points": len(cases)}
    if len(cases) < 3:
        nothing = dict.fromkeys(("exponent", "half_width", "factor", "law", "gaussian_theory"), math.nan)
        return {**where, **nothing}
    samples = torch.stack([results[_unit(scheme, *case)]["estimates"] for case in cases], dim=-1)
    x = [case[panel.against == "step_size"] for case in cases]
    # The theories at the same points, with the same weights.
    noise = samples - samples.mean(0)
    theories = {
        name: fit_power(x, noise + noise.new_tensor([theory(scheme, *case) for case in cases])).exponent
        for name, theory in THEORIES.items()
    }
    return {**where, **fit_power(x, samples)._asdict(), **theories}


def _exponent_note(row: Row) -> str:
    told = math.isfinite(row["half_width"])
    measured = f"{row['exponent']:.2f} ± {row['half_width']:.2f} (95 %)" if told else "that can't be told"
    return (
        f"{row['at']}: W2² with {plots.LABELS[row['scheme']]} goes with {row['against']} to the power {measured} at "
        f"{row['points']} points; the exact laws with {row['law']:.2f}, linear theory with {row['gaussian_theory']:.2f}"
    )


def share(panel: Panel, own: list[Row]) -> str:
    """What of a law's W2² the clouds show: in many dimensions few points tell a wide law from another only in part."""
    known = [row for row in own if math.isfinite(row["law"])]
    shares = [row["w2_squared"] / row["law"] for row in known if row["w2_squared"] > 5 * row["standard_error"] > 0]
    label = f"{_where(panel)}: of W2² of the exact law with {plots.LABELS[own[0]['scheme']]} the estimates show"
    if not shares:
        return f"{label} an amount that their noise hides"
    return (
        f"{label} {min(shares):.2f} to {max(shares):.2f} (where they are over five times their error, at {len(shares)} "
        f"of {len(own)} points)"
    )


def curve(panel: Panel, scheme: str, rows: list[Row]) -> list[Row]:
    """The rows of a scheme on a panel, in its order."""
    own = {(row["dim"], row["step_size"]): row for row in rows if row["scheme"] == scheme}
    return [own[case] for case in panel.cases() if case in own]


def _where(panel: Panel) -> str:
    return f"d = {panel.dims[0]}" if panel.against == "step_size" else f"h = {panel.step_sizes[0]:g}"


def _shown(row: Row) -> str:
    return f"{row['w2_squared']:.3g} ± {row['standard_error']:.2g}"


def smooth(panel: Panel, error: Callable[[float, float], float], points: int) -> tuple[list[float], list[float]]:
    """Abscissae evenly over the panel in their logarithm, and errors by dimension and step size there."""
    low, high = (math.log(end(getattr(panel, f"{panel.against}s"))) for end in (min, max))
    x = [math.exp(low + (high - low) * k / (points - 1)) for k in range(points)]
    return x, [error(*_case(panel, value)) for value in x]


def _case(panel: Panel, value: float) -> tuple[float, float]:
    """Dimension and step size at an abscissa."""
    return (value, panel.step_sizes[0]) if panel.against == "dim" else (panel.dims[0], value)


def law_curve(panel: Panel, scheme: str) -> tuple[list[float], list[float]]:
    """Errors of the exact law, dear as they are, at the panel's points and some between, and a curve through their
    logarithms: between two of them another is found until the curve was right there."""
    error = partial(law_error, scheme)
    x, y = smooth(panel, error, _LEAST_LAWS)
    own = [(case[panel.against == "step_size"], error(*case)) for case in panel.cases()]
    known = {math.log(a): math.log(b) for a, b in [*zip(x, y, strict=True), *own] if 0.0 < b < math.inf}
    if len(known) < 2:
        return [], []
    gaps = list(pairwise(sorted(known)))
    for _ in range(_REFINED):
        through = _through(known)
        split: list[tuple[float, float]] = []
        for low, high in gaps:
            middle = 0.5 * (low + high)
            found = error(*_case(panel, math.exp(middle)))
            if not 0.0 < found < math.inf:
                continue
            known[middle] = math.log(found)
            if abs(known[middle] - through(middle)) > _RIGHT:
                split += [(low, middle), (middle, high)]
        gaps = split
    low, high, through = min(known), max(known), _through(known)
    fine = [low + (high - low) * k / 400 for k in range(401)]
    return [math.exp(a) for a in fine], [math.exp(through(a)) for a in fine]


def _through(known: Mapping[float, float]) -> Callable[[float], float]:
    """A curve through points, without overshooting."""
    from scipy.interpolate import PchipInterpolator

    curve = PchipInterpolator(*zip(*sorted(known.items()), strict=True))
    return lambda at: float(curve(at))


def _labels(ticks: Sequence[float]) -> list[str]:
    """Of a logarithmic axis: those that would run into the label before them are left out."""
    least = _LABEL * math.log(ticks[-1] / ticks[0])
    labels, last = [], -math.inf
    for tick in ticks:
        shown = math.log(tick) - last >= least
        last = math.log(tick) if shown else last
        labels.append(f"{tick:g}" if shown else "")
    return labels


def draw(settings: Settings, rows: list[Row], fitted: list[Row], file: Any) -> None:
    """The panels side by side, with the exact laws of both schemes, and their linear theory."""
    figure, axes = plots.panels(len(settings.panels), height=5.2 if fitted else 4.4, share_y=True)
    wide = student_95(settings.repeats - 1)
    # Linear theory has a zero, which would stretch the axis.
    floor = 0.3 * min(row[key] for row in rows for key in ("w2_squared", "law") if 0.0 < row[key] < math.inf)
    for axis, panel in zip(axes, settings.panels, strict=True):
        for scheme in settings.schemes:
            own = [row for row in fitted if (row["against"], row["at"]) == (panel.against, _where(panel))]
            _draw_scheme(axis, panel, curve(panel, scheme, rows), own, wide, floor)
        axis.plot([], [], color="0.4", linestyle=":", label="linear theory, for a Gaussian")
        ticks = panel.step_sizes if panel.against == "step_size" else panel.dims
        axis.set(xscale="log", yscale="log", title=f"mixture, {_where(panel)}")
        axis.set_xlabel("step size h" if panel.against == "step_size" else "dimension d")
        axis.set_xticks(ticks, labels=_labels(ticks))
        axis.minorticks_off()
    axes[0].set_ylabel("W2² to the target (bars: 95 %)")
    handles = {text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    axes[0].set_ylim(bottom=floor)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(axes))
    plots.save(figure, file)


def _draw_scheme(axis: Any, panel: Panel, own: list[Row], fitted: list[Row], wide: float, floor: float) -> None:
    scheme = own[0]["scheme"]
    color, name = plots.COLOR_OF[scheme], plots.LABELS[scheme]
    shown = [row for row in own if math.isfinite(row["w2_squared"])]
    plots.points_above_zero(
        axis,
        [row[panel.against] for row in shown],
        [row["w2_squared"] for row in shown],
        [wide * row["standard_error"] for row in shown],
        floor=floor,
        color=color,
        label=f"{name}, particles",
    )
    axis.plot(*law_curve(panel, scheme), color=color, label=f"{name}, its exact law")
    theory = smooth(panel, partial(gaussian_error, scheme), points=401)
    axis.plot(*theory, color=color, linestyle=":", alpha=0.7)
    for row in fitted:
        if row["scheme"] == scheme and math.isfinite(row["half_width"]):
            x = [point[panel.against] for point in shown]
            label = f"{name}, {_where(panel)}: a fit, power {row['exponent']:.2f} ± {row['half_width']:.2f}"
            axis.plot(x, [row["factor"] * a ** row["exponent"] for a in x], "--", color=color, label=label)
