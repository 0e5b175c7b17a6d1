"""Numbers that remember the step size they were made from."""

import math
from dataclasses import dataclass

import pytest
import torch

from torchsrk.derived import Derived, Ledger, OtherForm, exp, expm1, of_step_size, plain, sqrt


def formula(h):
    return 2.0 * h / 3 + (1 - h) ** 2 - 5 / -h + (+h) ** -1 + 2**h + abs(h - 4) + exp(-h) * sqrt(-expm1(-2.0 * h) / h)


def test_arithmetic_is_that_of_floats_and_can_be_done_again():
    made = formula(Ledger().step_size(0.3))
    assert isinstance(made, Derived)
    assert plain(made) == formula(0.3)
    assert made.again(0.7) == formula(0.7)


def test_a_tensor_takes_it_as_a_number():
    ledger, x = Ledger(), torch.arange(3.0)
    h = ledger.step_size(0.5)
    for result in (h * x, x * h, torch.mul(x, h), torch.add(torch.zeros(3), x, alpha=h)):
        assert torch.equal(result, 0.5 * x)
    assert not ledger.decided


@pytest.mark.parametrize(
    "decide",
    [lambda h: h < 1.0, bool, hash, int, float, math.floor, math.ceil, round, str, lambda h: h // 1, lambda h: {h: 1}],
)
def test_what_decides_by_it_is_noted(decide):
    ledger = Ledger()
    assert decide(ledger.step_size(0.5)) == decide(0.5)
    assert ledger.decided


def test_the_function_behind_a_number_is_told_by_two_of_its_values():
    ledger = Ledger()
    h = ledger.step_size(0.5)
    half, square = 0.5 * h, h * h  # both 0.25
    assert plain(half) == plain(square) == 0.25
    assert ledger.function(0.25, 2.0, 4.0)(3.0) == 9.0
    assert ledger.function(0.25, 2.0, 1.0)(3.0) == 1.5
    assert ledger.function(0.25, 2.0, 7.0) is None


@dataclass(frozen=True)
class Pair:
    small: float
    powers: tuple[float, ...]


@of_step_size
def pair(h, number):
    return Pair(min(h, 0.5), tuple(h**k for k in range(number if h < 1.0 else number + 1)))


def test_a_function_of_numbers_may_branch_within():
    ledger = Ledger()
    made = pair(ledger.step_size(0.25), 3)
    assert made == pair(0.25, 3)
    assert made.small.again(0.75) == 0.5
    assert made.powers[2].again(0.5) == 0.25
    assert not isinstance(pair(0.25, 3).small, Derived)
    with pytest.raises(OtherForm, match="4 numbers where there were 3"):
        made.powers[2].again(2.0)
