"""Pyro's models as potentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Transform, constraints

from ..extras import missing
from ..potentials import Potential
from ..potentials.unconstrained import bijection

Values = dict[str, Tensor]


class PyroPotential(Potential):
    """The negative log joint density of a Pyro model, in unconstrained coordinates, one after another in one vector.

    ``potential_from_pyro`` makes it. ``diagnose`` and ``to_arviz`` take its ``names``, and ``constrain`` as
    ``parameters``.

    Args:
        log_joint: of the latent sites' values, for one particle.
        names: the shape of every latent site, by its name, in the order of the vector.
        transforms: from unconstrained space onto each site's support.
    """

    dim: int

    def __init__(
        self,
        log_joint: Callable[[Values], Tensor],
        names: Mapping[str, tuple[int, ...]],
        transforms: Mapping[str, Transform],
    ) -> None:
        super().__init__()
        self._log_joint, self.names, self._transforms = log_joint, dict(names), dict(transforms)
        self._shapes = {name: tuple(transforms[name].inverse_shape(shape)) for name, shape in names.items()}
        self._sizes = [math.prod(shape) for shape in self._shapes.values()]
        self.dim = sum(self._sizes)

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.vmap(self._energy)(x.reshape(-1, self.dim))
        return flat.reshape(x.shape[:-1])

    def values(self, x: Tensor) -> Values:
        """The sites' values, each (..., *its shape), of points x (..., dim)."""
        return {name: self._transforms[name](part) for name, part in self._parts(x).items()}

    def constrain(self, x: Tensor) -> Tensor:
        """The sites' values in one vector, (..., parameters)."""
        return torch.cat([value.reshape(*x.shape[:-1], -1) for value in self.values(x).values()], -1)

    def _parts(self, x: Tensor) -> Values:
        parts = zip(self._shapes.items(), x.split(self._sizes, -1), strict=True)
        return {name: part.reshape((*x.shape[:-1], *shape)) for (name, shape), part in parts}

    def _energy(self, x: Tensor) -> Tensor:
        values, log_volume = {}, x.new_zeros(())
        for name, part in self._parts(x).items():
            values[name] = self._transforms[name](part)
            log_volume = log_volume + self._transforms[name].log_abs_det_jacobian(part, values[name]).sum()
        return -(self._log_joint(values) + log_volume)


def potential_from_pyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> PyroPotential:
    """The posterior of a Pyro model, given its arguments, as a potential for thousands of particles at once.

    The model is run for every particle by ``torch.vmap``: it is written as for one chain, and may neither print, nor
    branch on the values of its sites, nor draw discrete ones that are not observed (sum these out). Plates that
    subsample are refused: a density that changes from call to call is no potential; see MinibatchPotential.

    ::

        potential = potential_from_pyro(eight_schools, effects, errors)
        plan = torchsrk.tune(potential)
        run = plan.sample(100)
        values = potential.values(run.trajectory)      # {"mu": ..., "theta": ...}
        torchsrk.to_arviz(run, names=potential.names, parameters=potential.constrain)
    """
    try:
        import pyro
        from pyro import poutine
    except ImportError as error:
        raise missing("Pyro", "pyro") from error

    def traced(values: Values) -> Any:
        with pyro.validation_enabled(False):  # which looks at values, as no vmap can
            return poutine.trace(poutine.condition(model, data=values)).get_trace(*args, **kwargs)

    def log_joint(values: Values) -> Tensor:
        with pyro.validation_enabled(False):
            return traced(values).log_prob_sum()

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        sites, again = (_latent_sites(traced({})) for _ in range(2))
    if not sites:
        raise ValueError("the model has no latent sites: there is nothing to sample")
    for name in sites:
        if name not in again or not _same(sites[name]["fn"].support, again[name]["fn"].support):
            raise ValueError(
                f"the support of {name!r} depends on the other sites: write it as a function of one with a support of "
                "its own"
            )
    names = {name: tuple(site["value"].shape) for name, site in sites.items()}
    return PyroPotential(log_joint, names, {name: bijection(site["fn"].support) for name, site in sites.items()})


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
