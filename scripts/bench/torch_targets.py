"""The problems as torchsrk potentials, with a gradient by hand or by autograd."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from cases import HAND, Case
from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression, Potential


class Network(Potential):
    """f(x) = ½‖x‖² + wᵀtanh(Vx + b)."""

    def __init__(self, inner: Tensor, bias: Tensor, outer: Tensor) -> None:
        super().__init__()
        for name, value in (("inner", inner), ("bias", bias), ("outer", outer)):
            self.register_buffer(name, value)
        self.dim = inner.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x.square().sum(-1) + torch.tanh(x @ self.inner.T + self.bias) @ self.outer

    def grad(self, x: Tensor) -> Tensor:
        """x + Vᵀ(w(1 - tanh²(Vx + b)))."""
        active = torch.tanh(x @ self.inner.T + self.bias)
        return x + ((1.0 - active.square()) * self.outer) @ self.inner


class DeepNetwork(Potential):
    """f(x) = ½‖x‖² + wᵀtanh(U tanh(Vx + b) + c)."""

    def __init__(self, inner: Tensor, bias: Tensor, middle: Tensor, shift: Tensor, outer: Tensor) -> None:
        super().__init__()
        given = {"inner": inner, "bias": bias, "middle": middle, "shift": shift, "outer": outer}
        for name, value in given.items():
            self.register_buffer(name, value)
        self.dim = inner.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x.square().sum(-1) + self._layers(x)[1] @ self.outer

    def grad(self, x: Tensor) -> Tensor:
        """By the chain rule."""
        first, second = self._layers(x)
        back = ((1.0 - second.square()) * self.outer) @ self.middle
        return x + ((1.0 - first.square()) * back) @ self.inner

    def _layers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.tanh(x @ self.inner.T + self.bias)
        return first, torch.tanh(first @ self.middle.T + self.shift)


def potential(case: Case) -> Potential:
    """The case's target in its precision."""
    given = case.problem.parameters
    values = {name: torch.as_tensor(value).to(getattr(torch, case.dtype)) for name, value in given.items()}
    target: Potential
    if case.problem.name == "mixture":
        target = GaussianMixture(values["shift"])
    elif case.problem.name == "logistic regression":
        target = LogisticRegression(values["features"], values["labels"], float(given["alpha"]))
    else:
        target = (DeepNetwork if case.problem.name == "deep network" else Network)(**values)
    # Wrapped as a mere function, the target's own gradient is out of sight.
    return target if case.gradient == HAND else FunctionPotential(target, target.dim)


def refuse_eager_fallback() -> None:
    """A run that could not be compiled must not be timed as if it had been."""
    warnings.filterwarnings("error", message="compile=True: this run is eager")


def start_of(case: Case, start: object = None) -> Tensor:
    """The state to start from: zeros, or an array."""
    if start is None:
        return torch.zeros(case.shape, dtype=getattr(torch, case.dtype))
    return torch.as_tensor(start)
