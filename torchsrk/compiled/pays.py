"""Whether a run is long enough to be compiled."""

# Seconds: of an eager gradient and its share of the step, for each call and for each number; of compiling.
_EAGER_CALL, _EAGER_NUMBER, _COMPILING = 40e-6, 2e-9, 1.0


def compiling_pays(gradients: int, numbers: int) -> bool:
    """Whether so many gradients of states of so many numbers would take longer eagerly than compiling does."""
    return gradients * (_EAGER_CALL + _EAGER_NUMBER * numbers) > _COMPILING
