"""Errors on one path: the composed path is a Brownian path, the reference is exact enough, and theory is met."""

import math
from dataclasses import replace

import pytest
import torch

from tests.compiled.traces import count_traces
from torchsrk import SRKID, EulerMaruyama, ItoDiffusion, sample
from torchsrk.brownian import FreshNoise, Needs
from torchsrk.compiled import programs
from torchsrk.experiments.base import Context
from torchsrk.experiments.fine_path import AREA_OF_A_CELL, fine_steps
from torchsrk.experiments.strong_error import (
    CHAINS,
    Case,
    Settings,
    bounds,
    conclude,
    growth_rate,
    measure,
    plan,
    with_drawn_area,
)
from torchsrk.potentials import NonConvex

CONTEXT = Context(seed=3, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)
SETTINGS = Settings(betas=(2.0,), dims=(1, 3), step_size=0.01, substeps=8, iterations=12, particles=300, runs=4)


@pytest.fixture(scope="module")
def results():
    return {unit: measure(SETTINGS, case, CONTEXT) for unit, case in plan(SETTINGS).items()}


def diffusion(dim):
    target = NonConvex(beta=2.0, gamma=0.5, dim=dim)
    return target, ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")


def path_of(x, first, count, dt):
    """The path of particles at x over so many cells."""
    sde = diffusion(x.shape[-1])[1]
    return fine_steps(sde, x, x, seed=7, step_size=dt, steps=range(first, first + count), compile=False).path


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_path_over_fine_steps_is_chens(dim, compile):
    """Of the same cells, put together one by one."""
    (target, sde), dt = diffusion(dim), 0.01
    x = target.sample((40,), seed=1, dtype=torch.float64)
    noise = FreshNoise(7, x.shape, dtype=x.dtype, device=x.device, levy_area=AREA_OF_A_CELL)
    W, A = torch.zeros_like(x), x.new_zeros(40, dim, dim)
    for step in range(20, 60):
        cell = noise.increment(step, 0.0, dt, Needs.LEVY_AREA)
        product = W.unsqueeze(-1) * cell.W.unsqueeze(-2)
        W, A = W + cell.W, A + cell.A + 0.5 * (product - product.mT)
    path = fine_steps(sde, x, x, seed=7, step_size=dt, steps=range(20, 60), compile=compile).path
    assert path.dt == pytest.approx(0.4)
    torch.testing.assert_close(path.W, W, rtol=0.0, atol=1e-14)
    torch.testing.assert_close(path.A, A, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("compile", [False, True])
def test_fine_steps_are_those_of_each_scheme_alone(compile):
    target, sde = diffusion(3)
    one, other = (target.sample((40,), seed=seed, dtype=torch.float64) for seed in (1, 2))
    numbers = {"seed": 7, "step_size": 0.01, "compile": compile}
    fine = fine_steps(sde, one, other, steps=range(20, 60), **numbers)
    for scheme, x, there in ((EulerMaruyama(), one, fine.em), (SRKID(), other, fine.srk_id)):
        alone = sample(sde, x, integrator=scheme, num_steps=40, first_step=20, levy_area=AREA_OF_A_CELL, **numbers)
        torch.testing.assert_close(there, alone.final, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("drawn", [False, True])
def test_the_areas_of_a_step_have_their_moments(drawn):
    """Var A = h²/4 and E[A² | W] = h²/12 + h(W_1² + W_2²)/12, within 4.5 standard errors."""
    h = 0.5
    increment = path_of(torch.zeros(40_000, 2, dtype=torch.float64), 0, 8, h / 8)
    assert increment.A is not None
    other = with_drawn_area(increment, seed=1, step=0)
    assert other.A is not None
    squared = (other if drawn else increment).A[:, 0, 1].square()
    sizes = increment.W.square().sum(-1)
    for weight in (torch.ones_like(sizes), sizes):
        excess = weight * (squared - h**2 / 12 - h * sizes / 12)
        assert abs(excess.mean()) < 4.5 * excess.std() / math.sqrt(len(excess))
    correlation = (increment.A[:, 0, 1] * other.A[:, 0, 1]).mean() / (h**2 / 4)
    assert abs(correlation) < 4.5 * 2 / math.sqrt(len(sizes))


def test_half_the_reference_step_changes_little():
    """On the same path. Of what is left out the term with I_(0,1) alone is correlated between the two step sizes: with
    n substeps it makes up 1.5/n of its own part."""
    (target, sde), h, count = diffusion(2), 0.01, 64
    start = target.sample((500,), seed=1, dtype=torch.float64)

    def solve(group):  # steps of so many cells
        x, dt = start, h / count
        with torch.no_grad():
            for first in range(0, 5 * count, group):
                x = SRKID().step(sde, 0.0, x, path_of(x, first, group, dt))
        return x

    finest, half, whole = solve(1), solve(2), solve(count)
    errors = [(whole - truth).square().sum(-1).mean() for truth in (finest, half)]
    assert abs(errors[0] - errors[1]) < 1.5 / count * errors[0]
    assert (finest - half).square().sum(-1).mean() < 0.002 * errors[0]


@pytest.mark.parametrize("compile", [False, True])
def test_the_reference_follows_the_composed_path(compile):
    """With one cell a step all chains but that with drawn areas make the reference's steps."""
    context = replace(CONTEXT, compile=compile)
    single = replace(SETTINGS, substeps=1, iterations=3, dims=(3,))
    errors = measure(single, (Case(single.betas[0], 3), 0), context)["errors"]
    assert (errors[CHAINS.index("srk-id")] < 1e-28).all()
    torch.testing.assert_close(errors[CHAINS.index("em")], errors[CHAINS.index("em-fine")])
    assert (errors[CHAINS.index("srk-id-drawn")] > 1e-8).all()


def test_runs_of_a_case_share_a_program(monkeypatch):
    """Each makes an SDE of its own."""
    programs._PROGRAMS.clear()
    traces = count_traces(monkeypatch)
    short = replace(SETTINGS, iterations=2)
    counts = []
    for run in range(2):
        measure(short, (Case(2.0, 3), run), replace(CONTEXT, compile=True))
        counts.append(len(traces))
    assert counts[0] == counts[1] > 0


def test_one_step_of_euler_maruyama_is_off_by_what_theory_says():
    one = replace(SETTINGS, dims=(3,), iterations=1, particles=4000, step_size=1e-3, substeps=16)
    for case in list(plan(one).values())[:2]:
        result = measure(one, case, CONTEXT)
        expected = result["growth"] * one.step_size
        assert float(result["errors"][0, 0]) == pytest.approx(expected, rel=0.1)


def test_bounds():
    target = NonConvex(beta=2.0, gamma=0.5, dim=3)
    low, high = bounds(target, growth=2.0, time=1e-4)
    assert low == pytest.approx(2e-4, rel=1e-3)
    assert low < high < 2e-4
    assert bounds(target, growth=2.0, time=math.inf)[0] == 2.0
    far = torch.tensor([[1e6, 0.0, 0.0]])
    assert float(growth_rate(target, far)) == pytest.approx(3 / 8)


def test_measuring_twice_gives_the_same_bytes(results):
    *_, other, unit = plan(SETTINGS)
    again = measure(SETTINGS, plan(SETTINGS)[unit], CONTEXT)
    assert torch.equal(again["errors"], results[unit]["errors"])
    assert again["growth"] == results[unit]["growth"]
    assert not torch.equal(again["errors"], results[other]["errors"])


def test_findings_hold_and_fail_on_wrong_numbers(results):
    conclusion = conclude(SETTINGS, results)
    assert all(finding.holds for finding in conclusion.findings), conclusion.findings
    assert len(conclusion.findings) == 4
    swapped = {
        unit: {**result, "errors": result["errors"][[1, 0, 1, 3]]}  # the schemes in each other's place
        for unit, result in results.items()
    }
    assert not any(finding.holds for finding in conclude(SETTINGS, swapped).findings)


def test_tables_and_figures(results, tmp_path):
    conclusion = conclude(SETTINGS, results)
    rows = conclusion.tables["errors"]
    assert len(rows) == len(SETTINGS.dims) * len(CHAINS) * SETTINGS.iterations
    last = [row for row in rows if (row["dim"], row["chain"], row["iteration"]) == (3, "em", SETTINGS.iterations)]
    own = torch.tensor([float(results[f"b2-d3-run{run}"]["errors"][0, -1]) for run in range(SETTINGS.runs)])
    assert last[0]["mse"] == pytest.approx(float(own.mean()))
    assert last[0]["standard_error"] == pytest.approx(float(own.std()) / 2)
    assert set(conclusion.figures) == {"errors", "gains"}
    for name, draw in conclusion.figures.items():
        draw(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
