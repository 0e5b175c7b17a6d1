"""The maximum mean discrepancy."""

from __future__ import annotations

import math

from torch import Tensor

from .clouds import centred, check_clouds
from .libraries import samples_loss


def maximum_mean_discrepancy_squared(x: Tensor, y: Tensor, *, bandwidth: float) -> Tensor:
    """Mean of k over pairs within x, plus within y, less twice between, k = exp(-‖x - y‖²/(2 bandwidth²)).

    geomloss's, differentiable; it holds a matrix of pairs.

    Args:
        x, y: (points, dim), of any two sizes.
        bandwidth: the kernel's length, in the unit of x: the distance at which points count as apart.
    """
    check_clouds(x=x, y=y)
    if not 0.0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth is a positive length; got {bandwidth!r}")
    x, y = centred(x, y)
    return 2.0 * samples_loss()("gaussian", blur=bandwidth, backend="tensorized")(x, y)  # theirs is half of it
