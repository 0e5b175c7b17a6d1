"""Compiled solves: states and gradients are those of plain ones, or the solve is plain and says why."""

import warnings

import pytest
import torch
from torch import nn

from tests.compiled.changes import CHANGES
from tests.compiled.traces import count_traces
from tests.problems import networks, sdes
from tests.test_gradients import PLACES, SOURCES
from torchsrk import SDE, Langevin, NonFiniteStateError, UnderdampedLangevin, integrate
from torchsrk.brownian import BrownianPath
from torchsrk.compiled import programs
from torchsrk.compiled.solve import CompiledSolve
from torchsrk.potentials import FunctionPotential, Potential
from torchsrk.sde import BaseSDE

TS = (0.0, 0.2, 0.5)
PLAIN = "compile=True: this solve is plain, as"
EXACT = {"rtol": 1e-11, "atol": 1e-11}
ROUNDED = {torch.float64: EXACT, torch.float32: {"rtol": 1e-4, "atol": 1e-4}}


def start(dim, particles=11, dtype=torch.float64):
    return torch.linspace(-1.0, 1.0, particles * dim, dtype=dtype).view(particles, dim)


def solved(sde, x0, scheme, **options):
    """Positions, and the gradients of x0 and of the SDE's parameters."""
    x0 = x0.clone().requires_grad_()
    xs = integrate(sde, x0, TS, integrator=scheme, **{"step_size": 0.05, "seed": 3, **options})
    wanted = [x0, *(p for p in sde.parameters() if p.requires_grad)]
    slopes = torch.autograd.grad(xs.pow(3).sum(), wanted, allow_unused=True, materialize_grads=True)
    return xs.detach(), *slopes


def assert_same(sde, x0, scheme, **options):
    """And compiled: warnings are errors."""
    found, plain = solved(sde, x0, scheme, compile=True, **options), solved(sde, x0, scheme, **options)
    for ours, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, theirs, **ROUNDED[x0.dtype])


class Energy(Potential):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1) + x.square().sum(-1)


class Matrices(nn.Module):
    def __init__(self, dim, brownian):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, dim * brownian))
        self.form = (dim, brownian)

    def forward(self, x):
        return self.layers(x).unflatten(-1, self.form)


class Entries(nn.Module):
    """A network for each entry."""

    def __init__(self, dim, width):
        super().__init__()
        self.inner, self.outer = (nn.Parameter(torch.randn(dim, width).double()) for _ in range(2))

    def forward(self, x):
        return torch.einsum("...dh,dh->...d", (x.unsqueeze(-1) * self.inner).tanh(), self.outer).sigmoid()


def drift(dim):
    return nn.Sequential(nn.Linear(dim, 8), nn.Tanh(), nn.Linear(8, dim))


PROBLEMS = {
    "matrix": lambda: (SDE(drift(3), nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4)), "additive"), "srk-ld"),
    "number": lambda: (SDE(drift(3), nn.Parameter(torch.tensor(0.3)), "additive"), "shark"),
    "networks": lambda: (networks(3), "srk-id"),
    "networks, em": lambda: (networks(3), "em"),
    "entries": lambda: (SDE(drift(3), Entries(3, 5), "diagonal"), "srk-id"),
    "general": lambda: (SDE(drift(3), Matrices(3, 2), "general"), "srk-id"),
    "scalar": lambda: (SDE(drift(3), Matrices(3, 1), "scalar"), "srk-id"),
    "isotropic": lambda: (sdes()["isotropic"][0], "srk-id"),
    "skew": lambda: (sdes()["skew"][0], "em"),
    "timed": lambda: (sdes()["timed"][0], "srk-id"),
    "langevin": lambda: (Langevin(Energy()), "sra1"),
    "underdamped": lambda: (UnderdampedLangevin(Energy(), friction=1.0), "ubu"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_states_and_gradients_are_those_of_a_plain_solve(name, monkeypatch):
    """Traced by running it: torch's own tracer takes ten times as long."""
    monkeypatch.delattr(programs, "trace_step")
    torch.manual_seed(0)
    sde, scheme = PROBLEMS[name]()
    dim = 2 if name in ("timed", "langevin", "underdamped") else 3
    assert_same(sde.double(), start(dim), scheme)


@pytest.mark.parametrize("scheme", ["em", "srk-id"])
def test_in_single_precision_and_recomputed(scheme):
    sde = networks(3).float()
    for recompute in (False, True):
        assert_same(sde, start(3, 21, torch.float32), scheme, recompute=recompute)


class Timed(nn.Module):
    def __init__(self, with_time):
        super().__init__()
        self.with_time, self.layers = with_time, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()

    def forward(self, t, x):
        return self.layers(torch.cat((self.with_time(t, x[..., :1]), x), -1))


TIMES = {
    "full_like": lambda t, x: torch.full_like(x, t),
    "new_full": lambda t, x: x.new_full(x.shape, t),
    "sum": lambda t, x: x * 0 + t,
    "product": lambda t, x: torch.ones_like(x) * t,
}


@pytest.mark.parametrize("name", TIMES)
def test_drifts_that_depend_on_time(name):
    sde = SDE(Timed(TIMES[name]), nn.Parameter(torch.eye(2).double() * 0.4), "additive", time_dependent=True)
    assert_same(sde, start(2), "sra1")
    x0 = start(2)
    late = {"integrator": "sra1", "step_size": 0.05, "seed": 3}
    ts = torch.tensor([1.3, 1.5, 1.6])
    torch.testing.assert_close(integrate(sde, x0, ts, compile=True, **late), integrate(sde, x0, ts, **late), **EXACT)


@pytest.mark.parametrize("source", SOURCES)
def test_gradients_reach_whatever_is_read(source):
    """By closures, views, scripted modules and functions; those that can't be had apart are plain."""

    def gradients(**options):
        p = nn.Parameter(torch.tensor([0.7, -0.4], dtype=torch.float64))
        x0 = start(2).requires_grad_()
        sde, x = PLACES["in_the_drift"](SOURCES[source](p), x0)
        xs = integrate(sde, x, TS, integrator="em", step_size=0.05, seed=3, **options)
        return xs.detach(), *torch.autograd.grad(xs.pow(3).sum() + p.exp().sum(), (p, x0))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", PLAIN, RuntimeWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        found = gradients(compile=True)
        torch.testing.assert_close(found, gradients(), **EXACT)


FACTOR = 1.0


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.factor, self.layers = nn.Linear(2, 2).double(), 1.0, [1.0]

    def forward(self, x):
        moved = self.inner(x) * self.factor * FACTOR * self.layers[0]
        return moved if self.training else -moved


def _swap(field):
    field.inner = nn.Linear(2, 2).double()


CHANGED = {
    "attribute": lambda field: setattr(field, "factor", 3.0),
    "list": lambda field: field.layers.__setitem__(0, 2.0),
    "global": lambda field: globals().__setitem__("FACTOR", 2.0),
    "submodule": _swap,
    "mode": lambda field: field.eval(),
    "value": lambda field: field.inner.weight.data.mul_(2.0),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_is_seen(name, monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    field = Changing()
    sde = SDE(field, 0.4, "additive")
    before = solved(sde, start(2), "em", compile=True)
    CHANGED[name](field)
    after = solved(sde, start(2), "em")
    assert not torch.allclose(before[0], after[0])
    torch.testing.assert_close(solved(sde, start(2), "em", compile=True), after, **EXACT)


@pytest.mark.parametrize("name", list(CHANGES)[:60:12])
def test_a_change_of_what_an_energy_reads_is_seen(name, monkeypatch):
    given, change = CHANGES[name](monkeypatch)
    sde = given if isinstance(given, BaseSDE) else Langevin(FunctionPotential(given))
    options = {"integrator": "em", "step_size": 0.05, "seed": 3}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", PLAIN, RuntimeWarning)
        integrate(sde, start(2), TS, compile=True, **options)
        change()
        found = integrate(sde, start(2), TS, compile=True, **options)
    torch.testing.assert_close(found, integrate(sde, start(2), TS, **options).detach(), **EXACT)


@pytest.fixture
def traces(monkeypatch):
    """The steps that are traced."""
    return count_traces(monkeypatch)


def test_nothing_is_traced_again_while_parameters_and_batches_change(traces):
    sde = networks(2).float()
    optimizer = torch.optim.Adam(sde.parameters(), lr=1e-2)
    for update in range(4):
        x0 = start(2, 24 if update < 3 else 7, torch.float32)
        loss = (
            integrate(sde, x0, TS, integrator="srk-id", step_size=0.05, seed=update, compile=True)[-1].square().mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert len(traces) == 4  # forward and back, with two numbers of particles


class Random(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training) if self.training else x


REFUSED = {
    "random numbers": (SDE(Random(), 0.4, "additive"), {}, "draws random numbers of its own"),
    "changes": (SDE(nn.BatchNorm1d(2).double(), 0.4, "additive"), {}, "writes to a tensor"),
    "mixed": (SDE(lambda x: x.mean(0) - x, 0.4, "additive"), {}, "mixes its particles"),
    "by value": (SDE(lambda x: -x if bool(x.sum() > 0) else x, 0.4, "additive"), {}, "depends on values of tensors"),
    "lengths": (SDE(lambda x: -x, 0.4, "additive"), {"step_size": 0.15, "partial_step": True}, "more than one length"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_plain_and_remembered(name, traces):
    sde, options, reason = REFUSED[name]
    for _ in range(2):
        torch.manual_seed(0)
        with pytest.warns(RuntimeWarning, match=f"{PLAIN} .*{reason}"):
            found = solved(sde, start(2), "em", compile=True, **options)
        count = len(traces)
        torch.manual_seed(0)
        if name not in ("changes", "random numbers"):
            torch.testing.assert_close(found, solved(sde, start(2), "em", **options), rtol=0, atol=0)
    solve = {"integrator": "em", "step_size": 0.05, "seed": 3, "compile": True, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        integrate(sde, start(2), TS, **solve)
    assert len(traces) == count


def test_paths_and_transformations_are_plain():
    sde, x0 = SDE(drift(2).double(), 0.4, "additive"), start(2)
    path = BrownianPath(x0.shape, num_steps=10, seed=3, t1=0.5)
    with pytest.warns(RuntimeWarning, match=f"{PLAIN} its noise comes from a path"):
        integrate(sde, x0, TS, integrator="em", step_size=0.05, path=path, compile=True)
    options = {"integrator": "em", "step_size": 0.05, "seed": 3}
    with pytest.warns(RuntimeWarning, match=f"{PLAIN} torch.func"):
        found = torch.func.grad(lambda x: integrate(sde, x, TS, compile=True, **options).sum())(x0)
    torch.testing.assert_close(found, torch.func.grad(lambda x: integrate(sde, x, TS, **options).sum())(x0), **EXACT)


@pytest.mark.parametrize("part", ["gradients", "states"])
def test_a_wrong_program_is_found_out(part, monkeypatch):
    sde, x0 = networks(2).double(), start(2)
    if part == "gradients":
        right = CompiledSolve.gradients
        monkeypatch.setattr(CompiledSolve, "gradients", lambda *given: [1.0001 * g for g in right(*given)])
    else:
        advance = CompiledSolve.advance
        monkeypatch.setattr(
            CompiledSolve,
            "advance",
            lambda self, states, **given: (advance(self, states, **given), states.mul_(1.0001)),
        )
    with pytest.warns(RuntimeWarning, match=f"{PLAIN} the compiled"):
        found = solved(sde, x0, "em", compile=True)
    torch.testing.assert_close(found, solved(sde, x0, "em"), rtol=0, atol=0)


def test_any_number_of_threads_gives_the_same_bits():
    sde, x0 = networks(3).float(), start(3, 5000, torch.float32)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(solved(sde, x0, "em", compile=True))
    finally:
        torch.set_num_threads(before)
    for found in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found, results[0], strict=True))


def test_failures_name_their_step():
    sde = SDE(lambda x: x.pow(5) * 10.0, 0.1, "additive")
    options = {"integrator": "em", "step_size": 0.05, "seed": 3}
    errors = []
    for compile in (True, False):
        with pytest.raises(NonFiniteStateError) as error:
            integrate(sde, 3.0 * start(2), (0.0, 2.0), compile=compile, **options)
        errors.append(error.value)
    assert errors[0].step == errors[1].step
    assert errors[0].count == errors[1].count


def test_gradients_are_had_once_and_of_what_was_read():
    sde, x0 = networks(2).double(), start(2).requires_grad_()
    options = {"integrator": "em", "step_size": 0.05, "seed": 3, "compile": True}
    with pytest.raises(RuntimeError, match="compiled can be differentiated once"):
        torch.autograd.grad(integrate(sde, x0, TS, **options).sum(), x0, create_graph=True)
    xs = integrate(sde, x0, TS, **options)
    with torch.no_grad():
        next(sde.parameters()).mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        xs.sum().backward()


def test_under_autocast_and_with_frozen_parameters():
    sde, x0 = networks(2).float(), start(2, 9, torch.float32)
    sde.drift_function.requires_grad_(False)
    expected = solved(sde, x0, "em")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = solved(sde, x0, "em", compile=True)
    torch.testing.assert_close(found, expected, **ROUNDED[torch.float32])
    assert len(found) == 2 + len(list(sde.diffusion_function.parameters()))
