"""Pyro's models as potentials."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from ..extras import missing
from ..potentials import Potential
from ..potentials.interior import interior
from ..potentials.unconstrained import bijection
from ..transforms import is_transformed

Values = dict[str, Tensor]

# Pyro keeps the handlers of a model that runs in one list for all threads, and blocks of particles run on several.
_ONE_AT_A_TIME = threading.RLock()
_COMPARED, _FAR_LIKELIER = 64, 10.0  # points that two densities are compared at, and by what logarithm


class PyroPotential(Potential):
    """The negative log joint density of a Pyro model, in unconstrained coordinates, one after another in one vector.

    ``potential_from_pyro`` makes it. ``diagnose`` and ``to_arviz`` take its ``names``, and read the sites' values of a
    run of its plan. Positions of such a run are unconstrained: ``values(run.trajectory)`` makes the sites' values of
    them. Draws of ``DiffusionDistribution(potential)`` are values already, which ``sites(draws)`` takes apart.

    Args:
        log_joint: of the latent sites' values, for one particle.
        names: the shape of every latent site, by its name, in the order of the vector.
        supports: of every latent site.

    Attributes:
        event_shape: that of the sites' values in one vector, as ``constrain`` makes it: (parameters,).
        support: of such vectors.
    """

    dim: int

    def __init__(
        self,
        log_joint: Callable[[Values], Tensor],
        names: Mapping[str, tuple[int, ...]],
        supports: Mapping[str, constraints.Constraint],
    ) -> None:
        super().__init__()
        self._log_joint, self.names, self.supports = log_joint, dict(names), dict(supports)
        self._transforms = {name: bijection(support) for name, support in supports.items()}
        self._shapes = {name: tuple(self._transforms[name].inverse_shape(shape)) for name, shape in names.items()}
        self.event_shape = Size((sum(math.prod(shape) for shape in names.values()),))
        self.support = _OfSites(self)
        self._sizes = [math.prod(shape) for shape in self._shapes.values()]
        self.dim = sum(self._sizes)

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.vmap(self._energy)(x.reshape(-1, self.dim))
        return flat.reshape(x.shape[:-1])

    def values(self, x: Tensor) -> Values:
        """The sites' values, each (..., *its shape), of unconstrained x (..., dim), such as a plan's run.trajectory.

        It warns of draws that look like values already, as a DiffusionDistribution gives: ``sites`` is for these.
        """
        if x.ndim < 1 or x.shape[-1] != self.dim:
            raise ValueError(
                f"values takes unconstrained points (..., {self.dim}); got {tuple(x.shape)}. The sites' values in one "
                f"vector (..., {self.event_shape[0]}), as a DiffusionDistribution draws them, go to sites"
            )
        if self._are_values_already(x):
            warnings.warn(
                "these look like the sites' values already, and are taken for unconstrained points: all of them are in "
                "their supports, and far likelier as values. Draws of a DiffusionDistribution go to potential.sites",
                RuntimeWarning,
                stacklevel=2,
            )
        return self._values(x)

    def _values(self, x: Tensor) -> Values:
        return {
            name: interior(self._transforms[name](part), self.supports[name]) for name, part in self._parts(x).items()
        }

    def _are_values_already(self, x: Tensor) -> bool:
        """Whether points x have the law of the sites' values rather than that of the coordinates.

        Of points that have the latter, the ratio of the one density to the other is 1 on average, and so is its product
        over independent ones, which is above exp(10) with a probability of less than 1/20,000.
        """
        if self.is_identity or self.dim != self.event_shape[0] or is_transformed() or not x.numel():
            return False
        rows = x.detach().reshape(-1, self.dim)
        rows = rows[:: max(1, len(rows) // _COMPARED)]
        if not bool(self.support.check(rows).all()):
            return False
        with torch.no_grad():
            return bool((self.log_density(rows) + self(rows)).sum() > _FAR_LIKELIER)

    def constrain(self, x: Tensor) -> Tensor:
        """The sites' values in one vector, (..., parameters)."""
        return torch.cat([value.reshape(*x.shape[:-1], -1) for value in self._values(x).values()], -1)

    def unconstrain(self, point: Tensor) -> Tensor:
        """The x with constrain(x) = point."""
        free = (self._transforms[name].inv(value) for name, value in self._apart(point).items())
        return torch.cat([part.reshape(*point.shape[:-1], -1) for part in free], -1)

    def sites(self, point: Tensor) -> Values:
        """The sites' values, each (..., *its shape), of values in one vector (..., parameters).

        Draws of a DiffusionDistribution are such vectors; positions of a plan's run are not, and go to ``values``.
        """
        way_out = "Unconstrained points, as a plan's run.trajectory holds, go to values"
        if point.ndim < 1 or point.shape[-1] != self.event_shape[0]:
            raise ValueError(
                f"sites takes the sites' values in one vector (..., {self.event_shape[0]}); got {tuple(point.shape)}. "
                f"{way_out}"
            )
        found = self._apart(point)
        outside = [name for name, value in found.items() if not bool(self.supports[name].check(value).all())]
        if outside:
            raise ValueError(f"there are values of {', '.join(outside)} outside the support of their sites. {way_out}")
        return found

    def _apart(self, point: Tensor) -> Values:
        parts = point.split([math.prod(shape) for shape in self.names.values()], -1)
        split = zip(self.names.items(), parts, strict=True)
        return {name: part.reshape((*point.shape[:-1], *shape)) for (name, shape), part in split}

    def log_density(self, point: Tensor) -> Tensor:
        """Pyro's log joint density (...) of the sites' values in one vector (..., parameters)."""
        flat = torch.vmap(lambda one: self._log_joint(self._apart(one)))(point.reshape(-1, point.shape[-1]))
        return flat.reshape(point.shape[:-1])

    @property
    def is_identity(self) -> bool:
        """Whether all sites are on all of space: coordinates are their values."""
        return all(_is_all_of_space(support) for support in self.supports.values())

    def _parts(self, x: Tensor) -> Values:
        parts = zip(self._shapes.items(), x.split(self._sizes, -1), strict=True)
        return {name: part.reshape((*x.shape[:-1], *shape)) for (name, shape), part in parts}

    def _energy(self, x: Tensor) -> Tensor:
        values, log_volume = {}, x.new_zeros(())
        for name, part in self._parts(x).items():
            values[name] = self._transforms[name](part)
            log_volume = log_volume + self._transforms[name].log_abs_det_jacobian(part, values[name]).sum()
        return -(self._log_joint(values) + log_volume)


class _OfSites(constraints.Constraint):
    """The support of sites' values in one vector."""

    is_discrete, event_dim = False, 1

    def __init__(self, potential: PyroPotential) -> None:
        self._potential = potential

    def check(self, value: Tensor) -> Tensor:
        inside = torch.ones_like(value[..., 0], dtype=torch.bool)
        for name, part in self._potential._apart(value).items():
            found = self._potential.supports[name].check(part)
            inside = inside & found.reshape(*inside.shape, -1).all(-1)
        return inside


def _is_all_of_space(support: Any) -> bool:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.real


def potential_from_pyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> PyroPotential:
    """The posterior of a Pyro model, given its arguments, as a potential for thousands of particles at once.

    The model is run for every particle by ``torch.vmap``: it is written as for one chain, and may neither print, nor
    branch on the values of its sites, nor draw discrete ones that are not observed (sum these out). Plates that
    subsample are refused: a density that changes from call to call is no potential; see MinibatchPotential.

    ::

        potential = potential_from_pyro(eight_schools, effects, errors)
        plan = torchsrk.tune(potential, seed=0)
        run = plan.sample(10)
        values = potential.values(run.trajectory)      # {"mu": ..., "tau": ...}
        torchsrk.to_arviz(run, names=potential.names)

        posterior = DiffusionDistribution(potential, seed=0)
        values = potential.sites(posterior.sample((10000,)))      # draws are the sites' values already
    """
    try:
        import pyro  # noqa: F401
    except ImportError as error:
        raise missing("Pyro", "pyro") from error

    log_joint = _LogJoint(model, args, kwargs)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        traces = [log_joint.traced({}) for _ in range(2)]
    _warn_of_parameters(traces[0])
    sites, again = map(_latent_sites, traces)
    if not sites:
        raise ValueError("the model has no latent sites: there is nothing to sample")
    for name in sites:
        if name not in again or not _same(sites[name]["fn"].support, again[name]["fn"].support):
            raise ValueError(
                f"the support of {name!r} depends on the other sites: write it as a function of one with a support of "
                "its own"
            )
    names = {name: tuple(site["value"].shape) for name, site in sites.items()}
    potential = PyroPotential(log_joint, names, {name: site["fn"].support for name, site in sites.items()})
    _check_that_it_is_mapped(potential, next(iter(sites.values()))["value"])
    return potential


class _LogJoint:
    """A model's log joint density. A class, so that the potential of a model that can be pickled can be, too."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs

    def __call__(self, values: Values) -> Tensor:
        import pyro

        with _ONE_AT_A_TIME, pyro.validation_enabled(False):
            return self.traced(values).log_prob_sum()

    def traced(self, values: Values) -> Any:
        import pyro
        from pyro import poutine

        with _ONE_AT_A_TIME, pyro.validation_enabled(False):  # which looks at values, as no vmap can
            return poutine.trace(poutine.condition(self.model, data=values)).get_trace(*self.args, **self.kwargs)


def _warn_of_parameters(trace: Any) -> None:
    """Of what a user may believe to be sampled."""
    names = [name for name, site in trace.nodes.items() if site["type"] == "param"]
    if names:
        warnings.warn(
            f"the model has pyro.param sites, which are held at their values and not sampled: {', '.join(names)}. To "
            "sample one, write it as pyro.sample with a prior",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_that_it_is_mapped(potential: PyroPotential, like: Tensor) -> None:
    """One clear error for a model that can't be run for many particles at once."""
    try:
        with torch.no_grad():
            potential(like.new_zeros(2, potential.dim))
    except RuntimeError as error:
        if not any(text in str(error) for text in _LOOKS_AT_VALUES):
            raise
        raise ValueError(
            "the model looks at the values of its sites (an if or a while, .item(), float(...)), and is run for all "
            "particles at once, which have different ones: write it with torch.where, or torch.clamp and the like"
        ) from error


_LOOKS_AT_VALUES = ("data-dependent control flow", "calling .item()")  # as torch.vmap says it


def _latent_sites(trace: Any) -> dict[str, Any]:
    """Sites that are drawn, if all of them can be sampled."""
    found = {}
    for name, site in trace.nodes.items():
        if site["type"] != "sample" or site["is_observed"]:
            continue
        if type(site["fn"]).__name__ == "_Subsample":
            if site["fn"].subsample_size not in (None, site["fn"].size):
                raise ValueError(f"the plate {name!r} draws a subsample: give it all of its data")
        elif site["fn"].support.is_discrete:
            raise ValueError(f"the site {name!r} is discrete and not observed: sum it out of the density")
        else:
            found[name] = site
    return found


def _same(a: Any, b: Any) -> bool:
    """Whether two supports are one, bounds included."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return bool(torch.equal(torch.as_tensor(a), torch.as_tensor(b)))
    if isinstance(a, constraints.Constraint):
        return type(a) is type(b) and all(_same(value, vars(b)[name]) for name, value in vars(a).items())
    return bool(a == b)
