"""What repeats of a measurement say."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from ..metrics import corrected_wasserstein2_squared

# Of W2², as ``method:`` says: never chosen by the device that a run happens to be on.
Method = Literal["exact", "sinkhorn", "sinkhorn-online", "sinkhorn-multiscale"]


def corrected_w2_squared(particles: Tensor, draws: Tensor, method: Method = "exact") -> Tensor:
    """The corrected estimate of W2², of which the halves of either are the two clouds."""
    estimate = corrected_wasserstein2_squared(*particles.double().chunk(2), *draws.double().chunk(2), method=method)
    assert isinstance(estimate, Tensor)
    return estimate


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Over repeats; a mean that is not finite has no error to speak of."""
    mean = float(values.mean())
    return mean, float(values.std()) / math.sqrt(len(values)) if math.isfinite(mean) else 0.0
