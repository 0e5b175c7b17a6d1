"""Loops that run as one, and arrays that share storage: never where an entry reads what another one writes."""

import re

import pytest
import torch

from tests.compiled.test_same_numbers import ONE_BY_ONE, SIDE_BY_SIDE, assert_same, both, start
from torchsrk import SDE
from torchsrk.compiled.statements import Names, Statement, assembled

LOOP = ("for (int i1 = 0; i1 < 5; i1 += 1) ",)


def value(text, names):
    """C in which every entry of an array is asked for by its name."""
    return lambda _: re.sub(r"\b(t\d+|x)\[([^\[\]]*)\]", lambda found: names.read(*found.groups()), text)


def entrywise(array, text, at="i1", loops=LOOP, size=5):
    """What fills an entry of an array, from the names that entries have."""

    def statement(names):
        write = value(text, names)
        return Statement(array, size, write, names.reads_of(lambda: write(array))[1], loops, at)

    return statement


def written(*made):
    """The C of statements without what is around a group's section, and the vectors of storage."""
    names = Names()
    _, text, size = assembled([statement(names) for statement in made], names, "")
    return text.removeprefix("    EACH_GROUP {\n        INPUTS\n").removesuffix("    }\n"), size


def test_neighbours_are_one_loop_with_variables_for_what_it_alone_reads():
    text, size = written(entrywise("t0", "x[i1] + 1"), entrywise("t1", "t0[i1] * 2"), entrywise("out", "t1[i1]"))
    assert text.strip() == LOOP[0] + "{ const V t0 = x[i1] + 1; out[i1] = t0 * 2; }"
    assert size == 0


def test_another_entry_is_waited_for():
    text, size = written(entrywise("t0", "x[i1] + 1"), entrywise("out", "t0[(4 - i1)]"))
    assert text.count("for") == 2
    assert size == 5
    text, size = written(entrywise("t0", "x[i1] + 1"), entrywise("out", "t0[i1] + t0[(4 - i1)]"))
    assert text.count("for") == 2
    assert size == 5


def test_an_array_read_later_is_kept():
    sum_up = entrywise("t1", "for (int r = 0; r < 5; r++) t1[0] += t0[r];", loops=None, size=1)
    text, size = written(entrywise("t0", "x[i1]"), sum_up, entrywise("out", "x[i1] + t1[0]"))
    assert "t0[i1] = x[i1]" in text
    assert size == 6


def test_no_two_arrays_of_one_loop_share_storage():
    """t0 is last read in the loop that fills t2: its place is free after that loop, not within it."""
    turned = [entrywise("t0", "x[i1]"), entrywise("t1", "t0[(4 - i1)]"), entrywise("t2", "t1[i1] + 1")]
    text, size = written(*turned, entrywise("out", "t2[(4 - i1)] + t1[(4 - i1)]"))
    assert size == 15, text


def test_an_array_takes_the_place_of_one_that_its_loop_reads_last_entry_by_entry():
    first = [entrywise("t0", "x[(4 - i1)]"), entrywise("t1", "t0[(4 - i1)]")]
    _, size = written(*first, entrywise("t2", "t1[(4 - i1)]"), entrywise("out", "t2[(4 - i1)]"))
    assert size == 10  # t2 where t0 was
    turned = [entrywise("t0", "x[i1]"), entrywise("t1", "t0[(4 - i1)]"), entrywise("t2", "t1[(4 - i1)]")]
    again = entrywise(
        "t3", "t1[i1] + t2[(4 - i1)]"
    )  # t1 goes on as t3, as the entry that it reads is the one it writes
    _, size = written(*turned, again, entrywise("out", "t3[(4 - i1)]"))
    assert size == 10
    before = [entrywise("t3", "x[i1] * t2[(4 - i1)]"), entrywise("t4", "t3[i1] + t1[i1]")]
    ends = entrywise("out", "t3[(4 - i1)] + t4[(4 - i1)]")
    _, size = written(*turned, *before, ends)
    assert size == 15  # not t1 as t3: t4 still reads it


def test_parts_of_the_result_are_written_where_they_belong():
    parts = [entrywise("t1", "t0[i1]", "(i1 + 0)", size=10), entrywise("t1", "x[i1]", "(i1 + 5)", size=10)]
    copy = entrywise("out", "t1[i1]", loops=("for (int i1 = 0; i1 < 10; i1 += 1) ",), size=10)
    text, _ = written(entrywise("t0", "2 * x[i1]"), *parts, copy)
    assert "t1" not in text
    assert "out[(i1 + 0)]" in text
    assert "out[(i1 + 5)]" in text


def neighbours(x):
    """Entries that read one another, between entrywise operations of the same size."""
    y = (0.3 * x).sin()
    z = y + y.flip(-1) * x
    w = z.roll(1, -1) * y - z
    return torch.stack((w.flip(-1) * w, z * z.flip(-1) * 0.1, w[..., :1] * z)).sum(0)


def halves(x):
    """Two parts that are made of each other's entries and joined, as a state of positions and velocities."""
    a, b = x.chunk(2, -1)
    c = torch.cat((b * 0.5, a.sin()), -1)
    return torch.cat((c[..., 3:] * a, c[..., :3] + c.flip(-1)[..., :3]), -1)


@pytest.mark.parametrize("particles", [ONE_BY_ONE, SIDE_BY_SIDE])
@pytest.mark.parametrize("drift", [lambda x: neighbours(x) - x, lambda x: halves(x) - x], ids=["neighbours", "halves"])
def test_entries_that_read_others(drift, particles):
    sde = SDE(drift, lambda x: torch.full_like(x, 0.1), "diagonal")
    assert_same(*both(sde, start(particles, 6), "em"))


@pytest.mark.parametrize("terms", [1, 3, 8, 17, 64, 127, 128, 129, 300])
def test_sums_and_products_of_one_chain(terms):
    """Every length of the sums that run in vectors over one particle's terms, in whole vectors, halves and ones."""
    generator = torch.Generator().manual_seed(terms)
    weights = torch.randn(2, terms, generator=generator, dtype=torch.float64)
    shift = torch.randn(terms, generator=generator, dtype=torch.float64)

    def drift(x):
        hidden = torch.tanh(x @ weights + shift)
        ones = (hidden @ shift + hidden.sum(-1) + (1 + 0.01 * hidden).prod(-1)) / terms
        return hidden @ weights.T / terms + ones[..., None] - x

    sde = SDE(drift, lambda x: torch.full_like(x, 0.1), "diagonal")
    assert_same(*both(sde, start(ONE_BY_ONE, 2), "em"))
