"""Matrix products of a compiled step: blocks of several vectors of particles by several outputs, at every odd size."""

import pytest
import torch
from torch import nn

from tests.compiled.test_same_numbers import assert_same, both, start
from torchsrk import SDE, Langevin, sample
from torchsrk.compiled import products, programs
from torchsrk.compiled.calls import operation_name
from torchsrk.compiled.products import PANEL, in_panels
from torchsrk.potentials import FunctionPotential

PARTICLES = (1, 5, 8, 9, 37)  # one; less than a vector, a vector, a bit more, and tiles of which the last is not full
OPTIONS = {"integrator": "em", "step_size": 0.05, "num_steps": 6, "seed": 2, "compile": True}


def quiet(drift):
    return SDE(drift, lambda x: torch.full_like(x, 0.1), "diagonal")


def weights(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0]), dtype=dtype) / shape[0] ** 0.5


def compiled_from_here(monkeypatch):
    """The C of every step that is compiled from here on."""
    seen, program = [], programs.program_of
    monkeypatch.setattr(programs, "program_of", lambda *given: seen.append(program(*given)) or seen[-1])
    return seen


@pytest.mark.parametrize("outputs", [*range(1, 2 * PANEL + 2), 20, 64])
def test_panels_hold_every_weight_once(outputs):
    matrix = torch.arange(3.0 * outputs).reshape(3, outputs)
    packed = in_panels(matrix)
    at = 0
    columns = []
    for width, number in products._panels(outputs):
        assert width <= PANEL
        for _ in range(number):
            columns.append(packed[at : at + 3 * width].reshape(3, width))
            at += 3 * width
    torch.testing.assert_close(torch.cat(columns, 1), matrix, rtol=0, atol=0)


def test_weights_are_packed_once_for_all_that_read_them():
    into, out = weights(3, 64), weights(64, 3)
    sde = Langevin(FunctionPotential(lambda x: (torch.tanh(x @ into) @ out).square().sum(-1)))
    programs._PROGRAMS.clear()
    sample(sde, start(9, 3), **{**OPTIONS, "integrator": "srk-ld"})  # three gradients of four products
    (program,) = programs._PROGRAMS.values()
    read = [node.args[0] for node in program.graph.nodes if node.target is in_panels]
    assert len(read) == len(set(read)) == 4  # each matrix, and its transposed


@pytest.mark.parametrize(("hidden", "dtype"), [(64, torch.float32), (67, torch.float64), (129, torch.float64)])
def test_layers_of_any_size(hidden, dtype, monkeypatch):
    """Outputs that are no multiple of a block's, with and without a bias, for batches that end within a tile."""
    into, across, out = (
        weights(3, hidden, dtype=dtype),
        weights(hidden, hidden, dtype=dtype),
        weights(hidden, 3, dtype=dtype),
    )
    bias = weights(hidden, dtype=dtype)

    def drift(x):
        return torch.addmm(out[0], torch.tanh(torch.tanh(x @ into + bias) @ across), out) - x

    seen = compiled_from_here(monkeypatch)
    for particles in PARTICLES:
        assert_same(*both(quiet(drift), start(particles, 3, dtype), "em"))
    widest = -(-hidden // -(-hidden // PANEL))
    assert any(f"product_{widest}(groups, {hidden}" in text for text in seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_particle_has_the_same_bits_in_any_batch(dtype):
    """Whether its vector shares a tile or is alone, and wherever in it the particle is."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 23), nn.Softplus(), nn.Linear(23, 1)).to(dtype)
    sde, x0 = Langevin(FunctionPotential(lambda x: net(x).squeeze(-1) + x.square().sum(-1))), start(61, 4, dtype)
    whole = sample(sde, x0, **OPTIONS).final
    for first, last in ((0, 5), (3, 20), (8, 16), (16, 33), (40, 61)):
        part = sample(sde, x0[first:last], first_particle=first, **OPTIONS).final
        assert torch.equal(part, whole[first:last])


def test_rows_of_several_points_a_particle():
    """A product over all points of all particles at once, as where a scheme evaluates a network at several points."""
    into, out = weights(2, 60), weights(60, 2)

    def drift(x):
        points = torch.stack((x, 0.5 * x, x.flip(-1)), 1)  # (particles, points, dim)
        return (torch.tanh(points @ into) @ out).sum(1) - x

    for particles in PARTICLES:
        assert_same(*both(quiet(drift), start(particles, 2), "em"))


def test_factors_that_are_not_stored_in_order():
    """Slices, turned entries and sums as factors, and a factor that is read by two products."""
    into, turned = weights(3, 50), weights(50, 3)

    def drift(x):
        hidden = torch.tanh(x.flip(-1)[:, 1:4] @ into)
        return torch.cat((hidden @ turned, hidden[:, 10:] @ turned[10:]), -1) - x

    for particles in PARTICLES:
        assert_same(*both(quiet(drift), start(particles, 6), "em"))


def test_products_whose_factors_both_depend_on_the_state():
    into = weights(4, 48)

    def drift(x):
        hidden = torch.tanh(x @ into).reshape(-1, 6, 8)
        inner = hidden @ hidden.mT  # (particles, 6, 6)
        return (inner @ hidden).reshape(-1, 48) @ into.T - x

    for particles in PARTICLES:
        assert_same(*both(quiet(drift), start(particles, 4), "em"))


def test_weights_for_each_target_of_a_batch():
    """Particles (particles, targets, dim), every target with layers of its own."""
    into, out = torch.stack([weights(3, 40), -weights(3, 40)]), torch.stack([weights(40, 3), weights(40, 3)])

    def drift(x):
        return torch.einsum("pth,thd->ptd", torch.tanh(torch.einsum("ptd,tdh->pth", x, into)), out) - x

    state = torch.randn(21, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert_same(*both(quiet(drift), state, "em"))


def test_weights_are_read_at_every_run():
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)).double()
    sde = Langevin(FunctionPotential(lambda x: net(x).squeeze(-1) + x.square().sum(-1)))
    for _ in range(2):
        assert_same(*both(sde, start(21, 2), "em"))
        with torch.no_grad():
            net[0].weight.mul_(-2.0)


def test_what_is_made_twice_is_made_once(monkeypatch):
    """An energy that is written out twice has one tanh; numbers that only look alike stay apart."""
    shift = weights(3)
    seen = compiled_from_here(monkeypatch)

    def drift(x):
        twice = torch.tanh(x + shift).exp() - torch.tanh(x + shift).exp().sin()
        return twice + torch.zeros_like(x).sum(-1, keepdim=True) + torch.ones_like(x) * 0.1 - x

    assert_same(*both(quiet(drift), start(21, 3), "em"))
    (text,) = seen
    assert text.count("= v_tanh(") + text.count("v_exp(v_tanh(") == 1


def test_statements_name_the_operations_they_come_from(monkeypatch):
    seen, into = compiled_from_here(monkeypatch), weights(2, 64)
    sample(quiet(lambda x: torch.tanh(x @ into) @ into.T - x), start(21, 2), **OPTIONS)
    assert "/* mm (particles, 64) */" in seen[0]
    assert "/* tanh (particles, 64) */" in seen[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "dim"), [(1003, 20), (700, 13), (164, 64), (1000, 9)])
def test_a_chain_reads_a_large_matrix_once_there_and_back(rows, dim, dtype, monkeypatch):
    """As a regression's gradient does, by blocks of rows: of any number, with sums as many as they may be."""
    matrix, labels = weights(rows, dim, dtype=dtype), weights(rows, dtype=dtype)
    seen = compiled_from_here(monkeypatch)

    def there_and_back(x):
        return 0.1 * (torch.sigmoid(x @ matrix.T) - labels) @ matrix

    for drift in (lambda x: -x - there_and_back(x), lambda x: -there_and_back(torch.tanh(x) + 0.3 * x.cos()) - x):
        assert_same(*both(quiet(drift), start(2, dim, dtype), "em"))
    assert all("by blocks" in text for text in seen)


@pytest.mark.parametrize(("hidden", "dtype", "by_blocks"), [(64, torch.float64, 1), (64, torch.float32, 0)])
def test_a_chain_reads_the_weights_of_a_layer_once_there_and_back(hidden, dtype, by_blocks, monkeypatch):
    """Where there is no room for them and a copy: the last layer's row is no part of a copy of the weights either."""
    torch.manual_seed(0)
    layers = nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    network = nn.Sequential(*layers).to(dtype)
    sde = Langevin(FunctionPotential(lambda x: network(x).squeeze(-1) + 0.5 * x.square().sum(-1)))
    seen = compiled_from_here(monkeypatch)
    assert_same(*both(sde, start(2, 2, dtype), "srk-ld"))
    assert [text.count("by blocks */") for text in seen] == [3 * by_blocks]  # one for each of the step's gradients
    programs._PROGRAMS.clear()
    sample(sde, start(2, 2, dtype), **OPTIONS)
    (program,) = programs._PROGRAMS.values()
    scaled = [node for node in program.graph.nodes if operation_name(node) == "mul.Tensor"]
    assert not [node for node in scaled if node.meta["val"].numel() == hidden**2]


@pytest.mark.parametrize("particles", [1, 3])
def test_numbers_that_a_product_is_followed_by_may_be_made_of_it(particles, monkeypatch):
    """The first of them is not, and could go before the product; the next one reads what the product fills."""
    matrix, seen = weights(3, 1), compiled_from_here(monkeypatch)

    def drift(x):
        product, first = torch.tanh(x).cumsum(-1) @ matrix, x[:, 2:].exp()
        then = product + first
        return 0.1 * then.sin() * then.cos() * first - x

    assert_same(*both(quiet(drift), start(particles, 3).abs(), "em"))
    assert all("/* mm (particles, 1) */" in text for text in seen)


def test_what_a_product_still_reads_is_not_written_over_by_blocks(monkeypatch):
    """A square matrix: what lies between both products takes the place of the first one's factor, once that is read."""
    matrix, seen = weights(130, 130), compiled_from_here(monkeypatch)
    monkeypatch.setattr(products, "_MOST_SUMS", 130)

    def drift(x):
        inner = torch.tanh(x).cumsum(-1) @ matrix
        return torch.tanh(inner) @ matrix.T - 0.01 * inner.flip(-1) - x

    assert_same(*both(quiet(drift), start(2, 130), "em"))
    assert not any("by blocks" in text for text in seen)


def test_many_sums_are_not_added_up_by_blocks(monkeypatch):
    """What comes before a regression's first product may be one as well: to add up its rows by terms would be slow."""
    matrix, other, seen = weights(1000, 20), weights(20, 20), compiled_from_here(monkeypatch)

    def drift(x):
        moved = 0.1 * torch.tanh(x @ other) + x
        return -0.1 * torch.sigmoid(moved @ matrix.T) @ matrix - x

    assert_same(*both(quiet(drift), start(2, 20), "em"))
    assert all("W sums[20]" in text and "W sums[1000]" not in text for text in seen)
