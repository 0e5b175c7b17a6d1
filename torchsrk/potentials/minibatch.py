"""Stochastic gradients from a data set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..brownian.noise import Stream, check_seed, draw_uniform
from .base import Potential, check_energy, gradient_of_sum


class MinibatchPotential(Potential):
    """f(x) = prior(x) + Σᵢ loss(x, dataᵢ), whose ``grad`` sees a random minibatch at every call.

    The gradient is that of prior(x) + (n/b) Σ_{i in batch} loss(x, dataᵢ), the b indices drawn uniformly with
    replacement, the same ones for every particle: particles share the minibatches' noise, so a standard error over them
    leaves it out. It is the oracle of the paper's appendix on stochastic gradients: unbiased, E∇̂f = ∇f; of finite
    variance; and independent of the Brownian motion, since the indices come from a stream of their own. A gradient
    enters a step times h, so an oracle of variance σ² a dimension adds O(h²σ²) to SRK-LD's local mean-square deviation,
    and O(hσ²/α) to W2²: below the h³ of its rate while σ² = O(αh²), α the strong convexity. The paper drops the h², and
    asks for σ² < O(αh) so that its recursion unrolls at all; with the h² kept it does for any σ².

    ``forward`` is the energy over all the data. The number of gradients drawn so far is saved in the state dict: a run
    that goes on from one draws the minibatches it would have drawn.

    Args:
        loss: (x, *batch) to (..., observations): the negative log likelihood of each observation, for x (..., dim).
        data: tensors with the observations along their first dimension.
        batch_size: how many observations b a gradient sees.
        prior: the rest of the energy: a Potential, or None for a flat prior.
        seed: of the minibatches.
    """

    stateful = True

    def __init__(
        self,
        loss: Callable[..., Tensor],
        data: Tensor | Sequence[Tensor],
        *,
        batch_size: int,
        seed: int,
        prior: Potential | None = None,
    ) -> None:
        super().__init__()
        tensors = (data,) if isinstance(data, Tensor) else tuple(data)
        if not callable(loss):
            raise TypeError(f"loss is a callable (x, *batch) -> (..., observations); got {type(loss).__name__}")
        if not tensors or any(t.ndim == 0 or len(t) != len(tensors[0]) or len(t) == 0 for t in tensors):
            raise ValueError(
                "data is one or more non-empty tensors with the observations along their first dimension, as many in "
                f"each; got {[tuple(t.shape) for t in tensors]}"
            )
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size is a positive integer; got {batch_size!r}")
        if prior is not None and not isinstance(prior, Potential):
            raise TypeError(f"prior is a Potential (FunctionPotential wraps a callable); got {type(prior).__name__}")
        check_seed(seed)
        self.loss, self.prior = loss, prior
        self.dim = None if prior is None else prior.dim
        self.observations, self.batch_size, self.seed = len(tensors[0]), batch_size, seed
        self._names = [f"data_{i}" for i in range(len(tensors))]
        for name, tensor in zip(self._names, tensors, strict=True):
            self.register_buffer(name, tensor.detach().clone())
        # On the CPU wherever the module moves, and changed by an operation that torch.compile takes as it is.
        self._draws = torch.zeros((), dtype=torch.long, device="cpu")
        self._given: dict[int, list[Tensor]] = {}  # of each thread

    def forward(self, x: Tensor) -> Tensor:
        return self._energy(x, [getattr(self, name) for name in self._names])

    def grad(self, x: Tensor) -> Tensor:
        """An unbiased estimate of ∇f; every call draws a new minibatch."""
        indices = self._next_indices().to(x.device, non_blocking=True)
        batch = [getattr(self, name)[indices] for name in self._names]
        return gradient_of_sum(lambda y: self._energy(y, batch), x)

    def _next_indices(self) -> Tensor:
        given = None if torch.compiler.is_compiling() else self._given.get(threading.get_ident())
        if given is None:
            return next_indices(self._draws, _signed(self.seed), self.batch_size, self.observations)
        if not given:
            raise RuntimeError("more minibatches are asked for than were given")
        return given.pop(0)

    @contextmanager
    def given(self, indices: Sequence[Tensor]) -> Iterator[None]:
        """Within, in this thread: gradients take these minibatches in turn, and draw none."""
        thread, left = threading.get_ident(), list(indices)
        self._given[thread] = left
        try:
            yield
        finally:
            del self._given[thread]
        if left:
            raise RuntimeError(f"{len(left)} of {len(indices)} minibatches that were given are left")

    def indices(self, first: int, count: int) -> Tensor:
        """Those of minibatches number ``first`` and on, (count, batch_size); none is counted as drawn."""
        return _indices(first, count, self.seed, self.batch_size, self.observations, self._draws.device)

    @property
    def draws(self) -> int:
        """How many minibatches were drawn so far."""
        return int(self._draws)

    def get_extra_state(self) -> Tensor:
        return self._draws.clone()

    def set_extra_state(self, state: Tensor) -> None:
        self._draws.fill_(int(state))

    def _energy(self, x: Tensor, batch: Sequence[Tensor]) -> Tensor:
        losses = self.loss(x, *batch)
        if losses.shape != (*x.shape[:-1], len(batch[0])):
            raise ValueError(
                f"loss gives one number a point and observation: expected {(*x.shape[:-1], len(batch[0]))}, got "
                f"{tuple(losses.shape)}"
            )
        energy = losses.sum(-1) * (self.observations / len(batch[0]))
        if self.prior is not None:
            energy = energy + self.prior(x)
        return check_energy(energy, x)

    def extra_repr(self) -> str:
        return f"observations={self.observations}, batch_size={self.batch_size}, seed={self.seed}"


@torch.library.custom_op("torchsrk::next_indices", mutates_args=("draws",))
def next_indices(draws: Tensor, seed: int, batch_size: int, observations: int) -> Tensor:
    """Uniform indices below ``observations`` for minibatch number ``draws``, which is counted up."""
    number = int(draws)
    draws += 1
    return _indices(number, 1, seed % 2**64, batch_size, observations, draws.device)[0]


@next_indices.register_fake
def _(draws: Tensor, seed: int, batch_size: int, observations: int) -> Tensor:
    return draws.new_empty(batch_size)


def _indices(first: int, count: int, seed: int, batch_size: int, observations: int, device: torch.device) -> Tensor:
    shape = (count, 1, batch_size)
    uniform = draw_uniform(shape, seed=seed, stream=Stream.MINIBATCH, step=first, device=device)
    return (uniform.squeeze(1) * observations).long()


def _signed(seed: int) -> int:
    """The same 64 bits as operations of torch take integers."""
    return seed - 2**64 if seed >= 2**63 else seed
