"""Potentials: energies f(x) = -log density of the targets."""

from .affine import AffinePotential
from .banana import Banana
from .base import Potential
from .distribution import DistributionPotential
from .function import FunctionPotential
from .gaussian_mixture import GaussianMixture
from .logistic_regression import LogisticRegression
from .minibatch import MinibatchPotential
from .non_convex import NonConvex
from .unconstrained import UnconstrainedPotential

__all__ = [
    "AffinePotential",
    "Banana",
    "DistributionPotential",
    "FunctionPotential",
    "GaussianMixture",
    "LogisticRegression",
    "MinibatchPotential",
    "NonConvex",
    "Potential",
    "UnconstrainedPotential",
]
