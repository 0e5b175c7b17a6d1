"""What repeats of a measurement say."""

from __future__ import annotations

import math

from torch import Tensor

from ..metrics import corrected_wasserstein2_squared


def corrected_w2_squared(particles: Tensor, draws: Tensor) -> Tensor:
    """The corrected estimate of W2², of which the halves of either are the two clouds."""
    estimate = corrected_wasserstein2_squared(*particles.double().chunk(2), *draws.double().chunk(2))
    assert isinstance(estimate, Tensor)
    return estimate


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Over repeats; a mean that is not finite has no error to speak of."""
    mean = float(values.mean())
    return mean, float(values.std()) / math.sqrt(len(values)) if math.isfinite(mean) else 0.0
