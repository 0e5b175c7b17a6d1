"""Errors along runs: known orderings, findings that can fail, and reference particles kept on disk."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchsrk import Langevin, sample
from torchsrk.experiments import plots, traces
from torchsrk.experiments import reference_draws as references
from torchsrk.experiments.base import Context
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.reference_draws import Reference, reference_draws
from torchsrk.experiments.runs import load_config
from torchsrk.experiments.traces import Settings, Target
from torchsrk.metrics import gaussian_wasserstein2_squared
from torchsrk.potentials import LogisticRegression

CONFIGS = Path(__file__).parent.parent.parent / "configs"
CONTEXT = Context(seed=3, device=torch.device("cpu"), dtype=torch.float32, compile=False, progress=False)
MIXTURE = Target(kind="mixture", dim=2, step_sizes=(1.0,), start=3.0)
REGRESSION = Target(kind="regression", dim=2, step_sizes=(4.0,), start=5.0, observations=50)
TINY = Settings(
    metric="energy",
    targets=(MIXTURE, REGRESSION),
    iterations=(1, 12, 16, 20),
    plateau=3,
    particles=500,
    repeats=6,
    reference=Reference(particles=2000, step_size=0.5),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path))
    return tmp_path


def measured(settings, context=CONTEXT):
    return {unit: traces.measure(settings, case, context) for unit, case in traces.plan(settings).items()}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHSRK_CACHE", str(tmp_path_factory.mktemp("cache")))
        return measured(TINY)


def verdicts(settings, results):
    return [finding.holds for finding in traces.conclude(settings, results).findings]


def test_srk_ld_settles_lower_and_the_references_are_faithful(results):
    conclusion = traces.conclude(TINY, results)
    assert [finding.holds for finding in conclusion.findings] == [True, True, True]
    assert len(conclusion.tables["traces"]) == 2 * 2 * 4
    assert [row["draws"] for row in conclusion.tables["references"]] == ["exact", "chain"]
    picture = io.BytesIO()
    conclusion.figures["traces"](picture)
    assert picture.getvalue().startswith(b"\x89PNG")


def test_findings_turn_false_on_wrong_numbers(results):
    swapped = {
        unit: results[unit.replace("-em-", "-?-").replace("-srk-ld-", "-em-").replace("-?-", "-srk-ld-")]
        for unit in results
    }
    assert verdicts(TINY, swapped) == [False, False, True]
    worse = results | {"reference-regression-d2": results["reference-regression-d2"] | {"ksd_squared_v": 0.0021}}
    assert verdicts(TINY, worse) == [True, True, False]


def test_a_difference_within_chance_is_no_finding(results):
    """Means in the right order with repeats that disagree about it."""
    changed = dict(results)
    for repeat, (em, srk) in enumerate(((1.0, 0.1), (0.1, 0.6), (0.3, 0.2))):
        changed[f"mixture-d2-em-h1-run{repeat}"] = {"errors": torch.full((4,), em)}
        changed[f"mixture-d2-srk-ld-h1-run{repeat}"] = {"errors": torch.full((4,), srk)}
    assert verdicts(TINY, changed) == [False, True, True]


def test_an_unfinished_reference_is_found_out():
    """Particles that left 0 a quarter of a relaxation time ago are not the posterior, and the discrepancy says so."""
    settings = replace(TINY, targets=(REGRESSION,), reference=Reference(particles=2000, step_size=0.5, time=1.0))
    result = traces.measure(settings, REGRESSION, CONTEXT)
    assert result["ksd_squared_v"] > 10 * traces.KSD_LIMIT
    assert result["ksd_squared_v"] - result["ksd_squared_u"] < 0.01  # a point with itself adds little


@pytest.mark.parametrize("unit", ["reference-regression-d2", "regression-d2-srk-ld-h4-run1", "mixture-d2-em-h1-run0"])
def test_measured_twice_gives_the_same_bits(unit, cache, monkeypatch):
    """Also where the second time finds no reference on disk."""
    case = traces.plan(TINY)[unit]
    first = traces.measure(TINY, case, CONTEXT)
    monkeypatch.setenv("TORCHSRK_CACHE", str(cache / "another"))
    again = traces.measure(TINY, case, CONTEXT)
    for name, value in first.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(again[name]))


def test_states_are_those_of_one_run():
    potential = traces.potential_of(TINY, MIXTURE, CONTEXT)
    start = torch.full((50, 2), 3.0, dtype=torch.float32)
    whole = sample(Langevin(potential), start, integrator="srk-ld", step_size=0.5, num_steps=9, seed=5, thin=1)
    states = traces.states_along(potential, start, "srk-ld", 0.5, [1, 4, 4, 9], seed=5, context=CONTEXT)
    assert whole.trajectory is not None
    for iteration, state in states:
        assert torch.equal(state, whole.trajectory[iteration - 1])


def test_w2_after_one_step_is_between_known_gaussians():
    """A step of Euler-Maruyama from a point is Gaussian, and the mixture is nearly so."""
    settings = replace(TINY, metric="w2", targets=(replace(MIXTURE, step_sizes=(0.5,)),), iterations=(1,), plateau=1)
    runs = [traces.measure(settings, (settings.targets[0], "em", 0.5, k), CONTEXT)["errors"] for k in range(3)]
    a = torch.full((2,), 0.5)
    point = torch.full((2,), 3.0)
    mean = point - 0.5 * (point - a * torch.tanh(a @ point))
    law = gaussian_wasserstein2_squared(mean, torch.eye(2), torch.zeros(2), torch.eye(2) + torch.outer(a, a))
    assert torch.stack(runs).mean() == pytest.approx(float(law), rel=0.05)


def test_draws_are_chosen_without_replacement_and_afresh():
    pool = torch.arange(100.0).unsqueeze(-1)
    first, second = (traces.chosen(pool, 60, seed=1, step=step)[:, 0] for step in (1, 2))
    assert len(first.unique()) == 60
    assert not torch.equal(first, second)


def test_known_laws_are_lines_of_their_scheme_on_one_axis_for_all_panels(monkeypatch):
    """Where they are known: for W2² to the mixture."""
    settings = replace(TINY, metric="w2", targets=(replace(MIXTURE, step_sizes=(0.5, 1.0)), REGRESSION))
    levels = {"em": 0.3, "srk-ld": -0.01}
    results = {
        unit: {"floor": torch.zeros(6), "ksd_squared_v": 0.0, "ksd_squared_u": 0.0}
        if isinstance(case, Target)
        else {"errors": torch.full((4,), levels[case[1]]) + 0.001 * case[3]}
        for unit, case in traces.plan(settings).items()
    }
    conclusion, drawn = traces.conclude(settings, results), []
    monkeypatch.setattr(plots, "save", lambda figure, _: drawn.append(figure))
    conclusion.figures["traces"](io.BytesIO())
    mixture, regression = drawn[0].axes
    rows = conclusion.tables["plateaus"]
    for scheme, column in (("em", "em_law"), ("srk-ld", "srk_ld_law")):
        for rank, row in enumerate(rows[:2]):
            (line,) = [line for line in mixture.lines if list(line.get_ydata()) == [row[column]] * 2]
            assert line.get_color() == pytest.approx(plots.lighter(plots.COLOR_OF[scheme], (0.725, 1.0)[rank]))
    straight = [line for line in regression.lines if len(line.get_ydata()) == 2]
    assert [list(line.get_ydata()) for line in straight] == [[0.0, 0.0]]  # no law, only the axis
    assert mixture.get_ylim() == regression.get_ylim()
    assert mixture.get_ylim()[0] < -0.01
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == [
        *("Euler-Maruyama", "SRK-LD", "W2² of the exact law")
    ]


def test_a_run_that_breaks_is_infinite_from_there_on():
    settings = replace(TINY, targets=(replace(MIXTURE, step_sizes=(2.5,)),), iterations=(1, 400), plateau=1, repeats=2)
    results = measured(settings)
    errors = results["mixture-d2-em-h2.5-run0"]["errors"]
    assert math.isfinite(errors[0])
    assert math.isinf(errors[1])
    conclusion = traces.conclude(settings, results)
    assert not conclusion.findings[0].holds  # SRK-LD breaks too
    conclusion.figures["traces"](io.BytesIO())
    for unit in ("mixture-d2-srk-ld-h2.5-run0", "mixture-d2-srk-ld-h2.5-run1"):
        results[unit] = {"errors": torch.tensor([1.0, 0.1])}
    assert verdicts(settings, results) == [True]


def regression(seed=0):
    return LogisticRegression.synthetic(50, 2, seed=seed, dtype=torch.float32)


@pytest.fixture
def simulations(monkeypatch):
    """How many chains were run."""
    calls = []

    def counting(*arguments, **options):
        calls.append(options)
        return sample(*arguments, **options)

    monkeypatch.setattr(references, "sample", counting)
    return calls


SMALL = Reference(particles=64, step_size=0.5, time=2.0)


def test_reference_is_computed_once(simulations, cache):
    first = reference_draws(regression(), SMALL, CONTEXT)
    assert torch.equal(reference_draws(regression(), SMALL, CONTEXT), first)
    assert len(simulations) == 1
    assert len(list(cache.glob("draws-*.safetensors"))) == 1


def test_reference_depends_on_all_that_made_it(simulations, cache):
    reference_draws(regression(), SMALL, CONTEXT)
    reference_draws(regression(seed=1), SMALL, CONTEXT)
    reference_draws(LogisticRegression(regression().features, regression().labels, alpha=0.5), SMALL, CONTEXT)
    reference_draws(regression(), SMALL, replace(CONTEXT, seed=4))
    reference_draws(regression().double(), SMALL, replace(CONTEXT, dtype=torch.float64))
    for change in ({"particles": 65}, {"step_size": 0.4}, {"time": 3.0}, {"scheme": "em"}):
        reference_draws(regression(), replace(SMALL, **change), CONTEXT)
    assert len(simulations) == len(list(cache.glob("draws-*.safetensors"))) == 9


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    """The lowest bit of the last number."""
    return content[:-4] + bytes([content[-4] ^ 1]) + content[-3:]


@pytest.mark.parametrize("damage", [cut, flip, lambda content: b""])
def test_damaged_cache_is_computed_anew(simulations, cache, damage):
    first = reference_draws(regression(), SMALL, CONTEXT)
    (file,) = cache.glob("draws-*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert torch.equal(reference_draws(regression(), SMALL, CONTEXT), first)
    assert len(simulations) == 2
    assert file.read_bytes() == whole


def test_file_of_other_draws_is_not_taken(simulations, cache):
    first = reference_draws(regression(), SMALL, CONTEXT)
    (file,) = cache.glob("draws-*.safetensors")
    reference_draws(regression(seed=1), SMALL, CONTEXT)
    (other,) = set(cache.glob("draws-*.safetensors")) - {file}
    file.write_bytes(other.read_bytes())
    assert torch.equal(reference_draws(regression(), SMALL, CONTEXT), first)


def test_cache_that_others_can_write_to_is_refused(cache):
    cache.chmod(0o777)
    with pytest.raises(ConfigError, match="TORCHSRK_CACHE"):
        reference_draws(regression(), SMALL, CONTEXT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": (MIXTURE, MIXTURE)}, "twice"),
        ({"targets": (replace(REGRESSION, observations=None),)}, "observations"),
        ({"targets": (replace(MIXTURE, observations=5),)}, "a mixture has no observations"),
        ({"plateau": 1000}, "plateau: at most the"),
        ({"reference": Reference(particles=999)}, "1000 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change)


@pytest.mark.parametrize("name", ["fig1b", "w2_traces", "energy_traces"])
@pytest.mark.parametrize("profile", ["quick", "full"])
def test_shipped_configs_plan(name, profile):
    settings = load_config(CONFIGS / f"{name}.yaml", {"profile": profile}).settings
    cases = sum(2 * len(target.step_sizes) * settings.repeats for target in settings.targets)
    assert len(traces.plan(settings)) == cases + len(settings.targets)
