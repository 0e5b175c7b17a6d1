"""The problems as jax functions of a batch (particles, dim), with a gradient by hand or by autograd."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from cases import HAND, Case
from hidden_avx512 import hide_if_asked

hide_if_asked()

Function = Callable[[Array], Array]


def gradient(case: Case) -> Function:
    """∇f of every particle. Autograd goes through the summed energy; a vmap of grad was as fast on all targets."""
    values = {name: jnp.asarray(value, case.dtype) for name, value in case.problem.parameters.items()}
    energy, by_hand = _TARGETS[case.problem.name](**values)
    return by_hand if case.gradient == HAND else jax.grad(lambda x: energy(x).sum())


def start_of(case: Case, start: object = None) -> Array:
    """The state to start from: zeros, or an array."""
    return jnp.zeros(case.shape, case.dtype) if start is None else jnp.array(start)


def _mixture(shift: Array) -> tuple[Function, Function]:
    def energy(x: Array) -> Array:
        return 0.5 * jnp.square(x - shift).sum(-1) - jax.nn.softplus(-2.0 * (x @ shift))

    def by_hand(x: Array) -> Array:
        return x - shift * jnp.tanh(x @ shift)[..., None]

    return energy, by_hand


def _logistic_regression(features: Array, labels: Array, covariance: Array, alpha: Array) -> tuple[Function, Function]:
    def energy(x: Array) -> Array:
        logits = x @ features.T
        likelihood = jax.nn.softplus(logits).sum(-1) - logits @ labels
        return likelihood + 0.5 * alpha * ((x @ covariance) * x).sum(-1)

    def by_hand(x: Array) -> Array:
        return (jax.nn.sigmoid(x @ features.T) - labels) @ features + alpha * (x @ covariance)

    return energy, by_hand


def _network(inner: Array, bias: Array, outer: Array) -> tuple[Function, Function]:
    def energy(x: Array) -> Array:
        return 0.5 * jnp.square(x).sum(-1) + jnp.tanh(x @ inner.T + bias) @ outer

    def by_hand(x: Array) -> Array:
        return x + ((1.0 - jnp.square(jnp.tanh(x @ inner.T + bias))) * outer) @ inner

    return energy, by_hand


def _deep_network(inner: Array, bias: Array, middle: Array, shift: Array, outer: Array) -> tuple[Function, Function]:
    def energy(x: Array) -> Array:
        first = jnp.tanh(x @ inner.T + bias)
        return 0.5 * jnp.square(x).sum(-1) + jnp.tanh(first @ middle.T + shift) @ outer

    def by_hand(x: Array) -> Array:
        first = jnp.tanh(x @ inner.T + bias)
        second = jnp.tanh(first @ middle.T + shift)
        back = ((1.0 - jnp.square(second)) * outer) @ middle
        return x + ((1.0 - jnp.square(first)) * back) @ inner

    return energy, by_hand


_TARGETS = {
    "mixture": _mixture,
    "logistic regression": _logistic_regression,
    "network": _network,
    "deep network": _deep_network,
}
