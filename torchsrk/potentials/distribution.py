"""Any torch distribution on ℝⁿ as a potential."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Distribution, constraints

from .base import Potential, check_dim
from .unconstrained import without_mixture


class DistributionPotential(Potential):
    """f = -log_prob of a torch distribution whose support is all of ℝⁿ.

    The distribution has no batch shape: one with ``batch_shape=(dim,)``, such as Normal(zeros, ones), becomes a
    density on ℝⁿ through ``torch.distributions.Independent(d, 1)``. A scalar distribution takes x of shape (..., 1).
    Its parameters stay its own: they are differentiated through, but not registered here, and don't move with
    ``.to``. A density of angles (VonMises) is periodic: a diffusion's states are then angles up to whole turns, which
    DiffusionDistribution takes off.
    """

    dim: int

    def __init__(self, distribution: Distribution) -> None:
        super().__init__()
        if not isinstance(distribution, Distribution):
            raise TypeError(f"expected a torch.distributions.Distribution; got {type(distribution).__name__}")
        if len(distribution.batch_shape) or len(distribution.event_shape) > 1:
            raise ValueError(
                f"expected one density on vectors: batch_shape () and event_shape () or (dim,); got batch_shape "
                f"{tuple(distribution.batch_shape)} and event_shape {tuple(distribution.event_shape)}. "
                "torch.distributions.Independent turns batch dimensions into event dimensions."
            )
        if not _is_whole_space(distribution.support):
            raise ValueError(
                f"the support of {type(distribution).__name__} is {distribution.support}, not all of ℝⁿ: a diffusion "
                "would leave it. UnconstrainedPotential takes it to an unconstrained space, and DiffusionDistribution "
                "back again."
            )
        self.distribution = distribution
        self._scalar = not distribution.event_shape
        self.dim = 1 if self._scalar else distribution.event_shape[0]

    def forward(self, x: Tensor) -> Tensor:
        check_dim(x, self.dim, "this distribution")
        return -self.distribution.log_prob(x.squeeze(-1) if self._scalar else x)

    def extra_repr(self) -> str:
        return repr(self.distribution)


def _is_whole_space(support: object) -> bool:
    support = without_mixture(support)
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.real
