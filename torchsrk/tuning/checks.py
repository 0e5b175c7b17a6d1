"""What must hold of any density, looked at on the particles: identities with exact errors, and tails."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Identities:
    """Averages over particles that are known for every density, in standard errors; a coordinate each.

    Attributes:
        force: E[g] = 0.
        virial: E[(x - x̄)g] = 1, and ``virial_value`` its estimate.
    """

    force: Tensor
    virial: Tensor
    virial_value: Tensor

    def worst(self) -> float:
        """The largest deviation."""
        return float(torch.cat((self.force, self.virial)).abs().max())


def identities(x: Tensor, gradient: Tensor) -> Identities:
    """From particles x (particles, dim) and their gradients."""
    root = math.sqrt(len(x))
    tiny = torch.finfo(x.dtype).tiny
    products = (x - x.mean(0)) * gradient
    return Identities(
        force=root * gradient.mean(0) / gradient.std(0).clamp_min(tiny),
        virial=root * (products.mean(0) - 1.0) / products.std(0).clamp_min(tiny),
        virial_value=products.mean(0),
    )


def tail_shapes(x: Tensor) -> Tensor:
    """How heavy the tails of x (..., dim) are, both sides of every coordinate: (2, dim).

    The shape of the generalized Pareto law of the outer tenth, by probability-weighted moments (Hosking and Wallis,
    1987): -0.2 or so for a normal, 0 for an exponential tail, 1/ν for a Student-t with ν degrees of freedom. From 1/4
    on there are no fourth moments, so that a standard deviation hangs on a few draws.
    """
    rows = x.reshape(-1, x.shape[-1])
    return torch.stack([_upper_tail(rows), _upper_tail(-rows)])


def _upper_tail(rows: Tensor) -> Tensor:
    outer = max(2, len(rows) // 10)
    ordered = rows.sort(0).values
    excess = ordered[-outer:] - ordered[-outer - 1]
    weights = torch.linspace(1.0, 0.0, outer + 1, dtype=rows.dtype, device=rows.device)[1:].unsqueeze(-1)
    weights = weights * outer / (outer - 1)
    mean, weighted = excess.mean(0), (weights * excess).mean(0)
    return (2.0 - mean / (mean - 2.0 * weighted)).nan_to_num(0.0)
