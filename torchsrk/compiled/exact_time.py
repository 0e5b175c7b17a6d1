"""Times that float32 is too short for: torch makes what a step needs of them in float64, before the run."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..derived import Derived


class LengthsAs(TorchFunctionMode):
    """Within: a time is moved on by a part of the step's length as that is in a tensor, for every step, where the trace
    would note the number that the part has in the step that is traced."""

    def __init__(self, length: Tensor, time: Tensor) -> None:
        super().__init__()
        self._length, self._times = length, [time]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not any(arg is time for arg in args for time in self._times):
            return function(*args, **(kwargs or {}))
        made = function(
            *(arg.again(self._length) if isinstance(arg, Derived) else arg for arg in args), **(kwargs or {})
        )
        if isinstance(made, Tensor) and not made.ndim:
            self._times.append(made)
        return made
