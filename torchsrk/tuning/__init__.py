"""Tuning: a user's own density, drawn from without a number from the user."""

from .bias import StepBias, step_size_bias
from .plan import Tuning
from .report import Finding, TuningReport
from .tune import tune

__all__ = ["Finding", "StepBias", "Tuning", "TuningReport", "step_size_bias", "tune"]
