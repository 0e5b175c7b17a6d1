"""A wrong program is noticed before a state of it is returned, and a right one is not taken for wrong."""

import threading
import warnings
from dataclasses import replace

import pytest
import torch
from torch import distributions

from tests.compiled.traces import count_traces
from torchsrk import SDE, Langevin, sample
from torchsrk.compiled import check, checked, programs
from torchsrk.compiled.evaluation import Evaluation
from torchsrk.compiled.lowering import _RULES
from torchsrk.compiled.operations import POINTWISE, Kind, vector
from torchsrk.compiled.writer import Writer
from torchsrk.potentials import FunctionPotential
from torchsrk.sampling import compiling

OPTIONS = {"integrator": "em", "step_size": 0.01, "num_steps": 3, "seed": 5}
DIFFERS = "this run is eager, as the compiled step differs from the eager one: entry"
CENTRES = torch.tensor([[1.0, 0.0, -1.0], [-1.0, 0.5, 0.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([[0.3, -0.2, 0.1], [0.5, 0.4, -0.3], [0.2, 0.1, 0.7]], dtype=torch.float64)


def energy(x):
    """A little of everything that is broken below."""
    squares = (x.unsqueeze(-2) - CENTRES).square().sum(-1)
    bent = torch.where(x > 0.1, x.sin(), (0.5 * x).cos())
    picked = x[..., [2, 0]] * x[..., 1:]
    return 0.5 * squares.mean(-1) + torch.tanh(x @ WEIGHTS).sum(-1) + bent.sum(-1) + 0.1 * picked.exp().sum(-1)


def pointwise(name, build):
    return lambda patch: patch.setitem(POINTWISE, name, replace(POINTWISE[name], build=build))


def rule(name, wrap):
    return lambda patch: patch.setitem(_RULES, name, wrap(_RULES[name]))


def method(name, wrap):
    return lambda patch: patch.setattr(Writer, name, wrap(getattr(Writer, name)))


def scaled_noise(patch):
    drawn = compiling.draws
    patch.setattr(compiling, "draws", lambda *args: tuple(replace(n, scale=1.001 * n.scale) for n in drawn(*args)))


def old_parameters(patch):
    evaluated = Evaluation.__call__
    patch.setattr(Evaluation, "__call__", lambda *args: [1.01 * value for value in evaluated(*args)])


def shifted(lower):
    """Entries read one place too far along the last dimension."""

    def lowered(writer, call, shape):
        value = lower(writer, call, shape)
        size = shape[-1]
        return value.moved(shape, lambda index: [*index[:-1], f"(({index[-1]} + 1) % {size})"])

    return lowered


BROKEN = {
    "a sign": pointwise("sub.Tensor", lambda a, b, alpha=None: (f"({vector(a)} + {vector(b)})", Kind.VECTOR)),
    "a dropped term": pointwise("add.Tensor", lambda a, b, alpha=None: (vector(a), Kind.VECTOR)),
    "a dropped factor": pointwise("add.Tensor", lambda a, b, alpha=None: POINTWISE["add.Scalar"].build(a, b)),
    "another function": pointwise("tanh.default", POINTWISE["sigmoid.default"].build),
    "a condition turned round": pointwise("gt.Scalar", POINTWISE["lt.Scalar"].build),
    "branches swapped": pointwise("where.self", lambda c, a, b: POINTWISE["where.Scalar"].build(c, b, a)),
    "an index": rule("mm.default", shifted),
    "a constant": method("literal", lambda literal: lambda self, value: literal(self, 1.0001 * value)),
    "a sum": rule("sum.dim_IntList", lambda lower: lambda w, call, shape: _RULES["amax.default"](w, call, shape)),
    "the noise": scaled_noise,
    "old parameters": old_parameters,
    "places": method("places", lambda places: lambda self, *args: shifted_places(places(self, *args))),
}


def shifted_places(value):
    return replace(value, entry=lambda index: f"(1 - {value.entry(index)} / 2)")


def run(sde, x0, **more):
    return sample(sde, x0, **OPTIONS | more).final


def start(particles=37):
    return torch.randn(particles, 3, generator=torch.Generator().manual_seed(1))


def last_used():
    return next(reversed(programs._PROGRAMS.values()))


@pytest.mark.parametrize(("name", "particles"), [*((name, 37) for name in BROKEN), ("a sign", 3), ("a sum", 3)])
def test_a_broken_lowering_is_caught(name, particles, monkeypatch):
    sde = Langevin(FunctionPotential(energy))
    BROKEN[name](monkeypatch)
    with pytest.warns(RuntimeWarning, match=DIFFERS):
        compiled = run(sde, start(particles), compile=True)
    assert torch.equal(compiled, run(sde, start(particles)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_from_zero_where_a_wrong_sign_does_not_show_at_first(dtype, monkeypatch):
    BROKEN["a sign"](monkeypatch)
    sde = SDE(lambda x: x.mul(0.0) - x, 1.0, "additive")
    with pytest.warns(RuntimeWarning, match=DIFFERS):
        run(sde, torch.zeros(6, 3, dtype=dtype), compile=True, step_size=1e-4)


def by_number(x):
    return x.square().sum(-1) * (2.0 if len(x) > 100 else 1.0)


def by_range(x):
    return x.square().sum(-1) * (2.0 if 50 < len(x) < 60 else 1.0)


def by_rank(x):
    return x.square().sum(-1) * (2.0 if x.ndim == 1 else 1.0)


@pytest.mark.parametrize(("function", "shape"), [(by_number, (37, 3)), (by_range, (57, 3)), (by_rank, (3,))])
def test_branches_on_what_tracing_changes(function, shape):
    sde = Langevin(FunctionPotential(function))
    with pytest.warns(RuntimeWarning, match=DIFFERS):
        compiled = run(sde, torch.ones(shape), compile=True)
    assert torch.equal(compiled, run(sde, torch.ones(shape)))


def test_a_branch_on_the_type_of_time():
    def drift(t, x):
        return -x if isinstance(t, float) else -2.0 * x

    sde = SDE(drift, lambda t, x: 0.1 + 0.0 * x, "diagonal", time_dependent=True)
    with pytest.warns(RuntimeWarning, match=DIFFERS):
        compiled = run(sde, start(), compile=True)
    assert torch.equal(compiled, run(sde, start()))


def test_another_number_of_particles_is_checked_anew():
    sde = Langevin(FunctionPotential(by_range))
    run(sde, torch.ones(37, 3), compile=True)
    with pytest.warns(RuntimeWarning, match=DIFFERS):
        run(sde, torch.ones(57, 3), compile=True)


ILL_CONDITIONED = {
    "cancellation": lambda x: ((x + 1e4) - 1e4).square().sum(-1),
    "a long sum": lambda x: (x.unsqueeze(-1) * torch.linspace(-1.0, 1.0, 20_001, dtype=x.dtype)).tanh().sum((-1, -2)),
    "a steep wall": lambda x: torch.exp(80.0 * (x - 0.5)).sum(-1),
    "log(1 + x)/x": lambda x: (torch.log(1.0 + 1e-3 * x) / ((1.0 + 1e-3 * x) - 1.0)).sum(-1) + x.square().sum(-1),
}


@pytest.mark.parametrize("particles", [3, 37])
@pytest.mark.parametrize("name", ILL_CONDITIONED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_not_taken_for_a_fault(name, dtype, particles):
    """A warning would be an error here."""
    sde = Langevin(FunctionPotential(ILL_CONDITIONED[name]))
    x0 = 0.1 * torch.rand(particles, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    run(sde, x0, compile=True, step_size=1e-5)


def test_compensated_arithmetic_keeps_its_digits():
    """For few chains sums may be added up in any order, and nothing else may."""
    x = torch.linspace(1e-4, 1e-3, 4).unsqueeze(-1)
    sde = SDE(lambda x: torch.log(1.0 + x) / ((1.0 + x) - 1.0) - x, lambda x: 0.0 * x, "diagonal")
    found = sample(sde, x, integrator="em", step_size=1.0, num_steps=1, seed=0, compile=True).final
    exact = torch.log1p(x.double()) / x.double()
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0.0)


def test_a_value_read_twice_is_stored():
    def drift(x):
        y = 0.1 * x
        for _ in range(40):
            y = y * y - 0.3
        return y - x

    sde = SDE(drift, 0.1, "additive")
    torch.testing.assert_close(run(sde, start(), compile=True), run(sde, start()))
    program = last_used()
    assert len(program.source) < 20_000  # it doubled with every reading


def test_what_a_distribution_checks_is_checked():
    """Compiled steps can't raise, but they can't go on outside the support either."""
    rate = torch.tensor(1.0)
    sde = Langevin(FunctionPotential(lambda x: -distributions.Exponential(rate).log_prob(x).sum(-1)))
    x0 = torch.full((6, 3), 0.05)
    for compiled in (False, True):
        with pytest.raises(ValueError, match="to be within the support"):
            sample(sde, x0, integrator="em", step_size=0.01, num_steps=100, seed=0, compile=compiled)
    rate.fill_(-1.0)
    for compiled in (False, True):
        with pytest.raises(ValueError, match="to satisfy the constraint"):
            sample(sde, x0, integrator="em", step_size=0.01, num_steps=100, seed=0, compile=compiled)


def test_threads_that_compile_at_once_leave_validation_on():
    call = torch.nn.Module.__call__

    def work(k):
        sde = Langevin(FunctionPotential(lambda x: -distributions.Normal(0.0, 1.0 + k).log_prob(x).sum(-1)))
        sample(sde, start(), compile=True, **OPTIONS)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.nn.Module.__call__ is call
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        distributions.Normal(0.0, -1.0)


def counted(monkeypatch, module, name):
    calls, function = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: [calls.append(1), function(*args)][1])
    return calls


def test_how_often_a_program_is_checked(monkeypatch):
    spot, whole = (counted(monkeypatch, checked, name) for name in ("check_rows", "check_about"))
    weight = torch.ones(3)
    sde = Langevin(FunctionPotential(lambda x: (weight * x.square()).sum(-1)))
    run(sde, start(), compile=True)
    assert (len(spot), len(whole)) == (1, 1)
    program = last_used()
    program.checks.seconds = 1000.0  # so dear that another one is far off
    for _ in range(5):  # the numbers of a tensor alone change
        weight.mul_(1.1)
        run(sde, start(), compile=True)
    assert (len(spot), len(whole)) == (1, 1)
    program.checks.seconds = 0.0
    run(sde, start(), compile=True)
    assert len(spot) == 2
    program.checks.seconds = 1000.0
    before = len(spot)
    run(sde, start(), compile=True, step_size=0.02)  # another program, and back to the first
    run(sde, start(), compile=True)
    assert len(spot) == before + 2


def test_rounding_is_tried_in_what_a_distribution_checks():
    """Its conditions are no longer met to the bit, and are not asked for."""

    def again(x):
        factor = torch.diag_embed(x.exp())
        factor[..., 1, 0] = x[..., 2]
        normal = distributions.MultivariateNormal(torch.zeros_like(x), scale_tril=factor)
        return normal.log_prob(x.sin()).unsqueeze(-1) * x

    distributions.Distribution.set_default_validate_args(True)
    plain = again(start())
    for noise in check._noise_of_operations(again, start(), plain):
        assert (noise > 0.0).any(-1).double().mean() > 0.5
        assert (noise <= 1e3 * torch.finfo(plain.dtype).eps * plain.abs().max()).all()


def test_a_dear_program_is_held_against_one_step(monkeypatch):
    """As is one that was held before, for another SDE."""
    spot, whole, sizes = (counted(monkeypatch, checked, f"check_{what}") for what in ("rows", "about", "block"))

    def another(scale):
        weight = torch.full((3,), scale)
        sde = Langevin(FunctionPotential(lambda x: (weight * x.square()).sum(-1)))
        run(sde, start(), compile=True, block_size=4)

    another(1.0)
    assert (len(spot), len(whole), len(sizes)) == (1, 1, 1)
    another(2.0)
    assert (len(spot), len(whole), len(sizes)) == (1, 2, 1)
    programs._PROGRAMS.clear()
    monkeypatch.setattr(checked, "_SLOW", 0.0)
    another(3.0)
    assert (len(spot), len(whole), len(sizes)) == (1, 3, 1)


def test_what_can_not_be_seen_is_checked_every_time(monkeypatch):
    spot = counted(monkeypatch, checked, "check_rows")
    hidden = {"scale": 1.0}
    sde = Langevin(FunctionPotential(lambda x: x.square().sum(-1) * eval("hidden['scale']", {"hidden": hidden})))
    for expected in (1, 2, 3):
        run(sde, start(), compile=True)
        assert len(spot) == expected
    hidden["scale"] = 2.0
    torch.testing.assert_close(run(sde, start(), compile=True), run(sde, start()))


def test_what_failed_is_not_traced_again(monkeypatch):
    traces = count_traces(monkeypatch)
    sde = Langevin(FunctionPotential(lambda x: (torch.fft.fft(x) + 9.0).sqrt().abs().sum(-1)))
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="has no C form"):
            run(sde, start(), compile=True)
    assert len(traces) == 2  # both ways, at the first call


def test_an_index_out_of_bounds_is_torchs_own_error():
    places = torch.tensor([0, 2])
    sde = Langevin(FunctionPotential(lambda x: x[..., places].square().sum(-1)))
    first = run(sde, start(), compile=True)
    places[1] = -1
    assert torch.equal(run(sde, start(), compile=True), first)  # the same entry, counted from the end
    places[1] = 3
    with pytest.raises(IndexError), pytest.warns(RuntimeWarning, match="out of the bounds of a dimension of size 3"):
        run(sde, start(), compile=True)


def test_a_step_that_changes_what_it_reads_is_eager():
    calls = []
    sde = Langevin(FunctionPotential(lambda x: [calls.append(1), x.square().sum(-1)][1]))
    with pytest.warns(RuntimeWarning, match="changes the SDE"):
        run(sde, start(), compile=True)
    buffer = torch.zeros(3)
    sde = SDE(lambda x: -x + buffer.add_(1.0), 0.1, "additive")
    with pytest.warns(RuntimeWarning, match="writes to a tensor that it did not make"):
        run(sde, start(), compile=True)


def test_what_distributions_keep_for_later_keeps_its_data():
    """Bernoulli computes its logits when they are first asked for: not while a step is traced."""
    bernoulli = distributions.Bernoulli(torch.tensor([0.2, 0.3, 0.4]), validate_args=False)
    sde = Langevin(FunctionPotential(lambda x: -bernoulli.log_prob(x.sigmoid()).sum(-1)))
    torch.testing.assert_close(run(sde, start(), compile=True), run(sde, start()))


def test_an_ulp_may_break_what_a_distribution_asks_for():
    """A value of 1 is in Bernoulli's support, and one moved by an ulp is not: the check must not trip over that."""

    def drift(x):
        ones = torch.ones_like(x)
        return ((x + 1e6) - 1e6) * distributions.Bernoulli(logits=x).log_prob(ones)

    sde, x0 = SDE(drift, 0.1, "additive"), start().float()
    torch.testing.assert_close(run(sde, x0, compile=True), run(sde, x0), rtol=1e-3, atol=1e-3)


def test_the_noise_of_operations_is_that_of_rounding():
    x = torch.linspace(0.5, 1.5, 12, dtype=torch.float64).view(4, 3)
    several = check._noise_of_operations(lambda y: (y + 1e8) - 1e8, x, (x + 1e8) - 1e8)
    noise = torch.stack([*several]).amax(0)
    unit = 1e8 * torch.finfo(torch.float64).eps
    assert ((noise > 0.05 * unit) & (noise < 2.0 * unit)).all()


def test_warnings_are_one_for_a_run():
    sde = Langevin(FunctionPotential(by_range))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(sde, torch.ones(57, 3), compile=True)
    assert len(caught) == 1
