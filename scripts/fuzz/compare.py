"""A compiled run beside eager ones: how far apart rounding may bring them, and whether they are further."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchsrk import NonFiniteStateError, sample

EAGER = "compile=True: this run is eager, as "
NON_FINITE = NonFiniteStateError.__name__
# Of the largest effect of roundings that was seen: compiled code rounds elsewhere, and a few draws miss the worst.
_MARGIN = 50.0
_UNITS = 16.0
_MOVED_ULPS = 3.0
# Operations without rounding. To move their results would break ties that both runs see.
_EXACT_NAMES = (
    "_reshape_alias _to_copy _unsafe_view abs alias amax amin aminmax as_strided bitwise_and cat ceil clamp "
    "clamp_max clamp_min clone constant_pad_nd copy copy_ copysign cummax cummin detach diag_embed diagonal "
    "embedding expand fill_ flip floor fmax fmin full_like gather hardtanh heaviside index index_copy index_fill "
    "index_put index_put_ index_select kthvalue lift_fresh masked_fill masked_fill_ max maximum median min minimum "
    "nan_to_num neg new_zeros ones_like permute relu repeat roll round scatter select select_backward "
    "select_scatter sgn sign slice slice_backward slice_scatter sort split stack take threshold_backward topk "
    "transpose tril triu trunc unfold view where zero_ zeros_like"
)
_EXACT = frozenset(_EXACT_NAMES.split())
_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a state, or with an error of this name; ``reason`` why a compiled one ran eagerly."""

    state: Tensor | None = None
    error: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a program; why it ran eagerly; whether it raises, as it does without compiling."""

    wrong: str
    reason: str = ""
    raises: bool = False


class Rounding(TorchDispatchMode):
    """Every result of a rounding operation times 1 + eps·u, with u in [-1, 1] a function of the number and a salt.

    Equal numbers stay equal, as they do in any other order of operations.
    """

    def __init__(self, salt: int) -> None:
        super().__init__()
        self._salt = salt

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name.removeprefix("aten::") in _EXACT or func.is_view:
            return result
        if not any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in tree_leaves((args, kwargs))):
            return result
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.dtype in (torch.float32, torch.float64):
                self._salt += 1
                leaf.mul_(_factors(leaf, self._salt))
        return result


def _factors(tensor: Tensor, salt: int, ulps: float = 1.0) -> Tensor:
    """1 + ulps·eps·u, u from the bits of each number."""
    hashed = (tensor.detach().double().contiguous().view(torch.int64) + salt * 7919) * _MULTIPLIER
    u = (hashed >> 40).double() / 2.0**23
    factors = 1.0 + ulps * torch.finfo(tensor.dtype).eps * u
    return factors.to(tensor.dtype).view(tensor.shape)


def moved(x0: Tensor, salt: int) -> Tensor:
    """x0 some units in the last place away; equal coordinates stay equal."""
    return x0 * _factors(x0, salt, _MOVED_ULPS)


def run(sde: Any, x0: Tensor, options: dict[str, Any], **more: Any) -> Outcome:
    """``sample``, with its errors and its reason to be eager as values."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state, error = None, ""
        try:
            state = sample(sde, x0, **options, **more).final
        except NonFiniteStateError:
            error = NON_FINITE
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    texts = [str(warning.message) for warning in caught]
    reason = next((text.removeprefix(EAGER) for text in texts if text.startswith(EAGER)), "")
    return Outcome(state, error, reason)


def rounded_runs(sde: Any, x0: Tensor, options: dict[str, Any], salts: Sequence[int]) -> list[Outcome]:
    """Eager runs with other roundings: of the start, of every operation, or of both."""
    outcomes = []
    for salt in salts:
        start = x0 if salt % 3 == 0 else moved(x0, salt)
        with nullcontext() if salt % 3 == 1 else Rounding(salt << 20):
            outcomes.append(run(sde, start, options))
    return outcomes


def disagreement(eager: Outcome, compiled: Outcome, rounded: Sequence[Outcome]) -> str:
    """What is wrong with a compiled run beside an eager one and some with other roundings; empty if nothing is."""
    if eager.error or compiled.error:
        kinds = {outcome.error.partition(":")[0] for outcome in (eager, *rounded)}
        if compiled.error.partition(":")[0] in kinds or (eager.error and compiled.error):
            return ""
        return f"eager: {eager.error or 'finite'}; compiled: {compiled.error or 'finite'}"
    assert eager.state is not None
    assert compiled.state is not None
    if compiled.state.shape != eager.state.shape or compiled.state.dtype != eager.state.dtype:
        return f"{compiled.state.dtype} {tuple(compiled.state.shape)}, not {tuple(eager.state.shape)}"
    distance, allowed = _rows(compiled.state - eager.state), tolerance(eager.state, rounded)
    if bool((distance <= allowed).all()):
        return ""
    row = int((distance / allowed).nan_to_num(nan=torch.inf).argmax())
    return (
        f"particle {row} is off by {distance[row]:.3g}, where rounding explains {allowed[row]:.3g}: "
        f"eager {_shown(eager.state[row])}, compiled {_shown(compiled.state[row])}"
    )


def tolerance(state: Tensor, rounded: Sequence[Outcome]) -> Tensor:
    """A bound for each particle, on its own: a discontinuity that one is near to excuses no other."""
    eps = torch.finfo(state.dtype).eps
    largest = _UNITS * eps * torch.clamp(_rows(state), min=1e-3)
    for outcome in rounded:
        if outcome.state is None:
            return torch.full_like(largest, torch.inf)
        largest = torch.maximum(largest, _MARGIN * _rows(outcome.state - state))
    return largest


def compare(sde: Any, x0: Tensor, options: dict[str, Any]) -> Verdict:
    """Run a program both ways."""
    eager, compiled = run(sde, x0, options), run(sde, x0, options, compile=True)
    raises = bool(eager.error and compiled.error and eager.error != NON_FINITE)
    if compiled.reason and not raises:
        same = eager.error == compiled.error and (eager.state is None or torch.equal(eager.state, compiled.state))
        return Verdict("" if same else "an eager run after a warning has other bits", compiled.reason)
    rounded: list[Outcome] = []
    wrong = disagreement(eager, compiled, rounded)
    for salts in (range(6), range(6, 36)):  # few are wrong, and what is wrong is worth a closer look
        if wrong:
            rounded += rounded_runs(sde, x0, options, salts)
            wrong = disagreement(eager, compiled, rounded)
    return Verdict(wrong, raises=raises)


def _rows(states: Tensor) -> Tensor:
    return states.double().abs().flatten(1).amax(-1)


def _shown(row: Tensor) -> str:
    return "[" + ", ".join(f"{value:.9g}" for value in row[:4].tolist()) + (", ...]" if len(row) > 4 else "]")
