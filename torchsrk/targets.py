"""What is to be sampled: the log density, shapes and support of a target, and its potential on all of ℝⁿ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.distributions import Distribution, Laplace, constraints

from .integrators import Integrator
from .potentials import Potential, UnconstrainedPotential
from .potentials.function import Function, Negative
from .potentials.precision import PRECISIONS
from .potentials.unconstrained import Constrained
from .sde import Langevin, UnderdampedLangevin

Target = Potential | Distribution | Callable[[Tensor], Tensor]


def target_given(target: Target | None, log_density: Function | None, energy: Function | None) -> Target:
    """The one target that was given, whichever way it was named."""
    given = [value for value in (target, log_density, energy) if value is not None]
    if len(given) != 1:
        raise TypeError(
            "give exactly one of target, log_density= (log p, up to a constant) and energy= (its negative); got "
            f"{len(given)}"
        )
    if log_density is not None and isinstance(log_density, (Potential, Distribution)):
        hint = "energy=" if isinstance(log_density, Potential) else "target"
        raise TypeError(f"{type(log_density).__name__} is no function that gives log densities: pass it as {hint}")
    if energy is None or isinstance(energy, Potential):
        return given[0]
    if isinstance(energy, Distribution) or not callable(energy):
        raise TypeError(f"energy is a callable from points to energies, -log p; got {type(energy).__name__}")
    return Negative(energy)


def refuse_models(target: Any) -> None:
    """One clear error for a Pyro model, which draws by itself where a density would be given points."""
    names = getattr(getattr(target, "__code__", None), "co_names", ())
    known = getattr(target, "__globals__", {})
    named = [known[name] for name in names if name in known]
    samples = "sample" in names and any(getattr(value, "__name__", None) == "pyro" for value in named)
    is_statement = any(getattr(value, "__module__", None) == "pyro.primitives" for value in named)
    is_module = any(kind.__module__.startswith("pyro.nn") for kind in type(target).__mro__)
    if samples or is_statement or is_module:
        raise TypeError(
            f"{getattr(target, '__name__', type(target).__name__)} is a Pyro model, and no log density: "
            "torchsrk.interop.potential_from_pyro(model, *args) makes a potential of it"
        )


def checked_shape(name: str, shape: Any) -> Size:
    """A shape, or one clear error for a number in its place."""
    if isinstance(shape, int) and not isinstance(shape, bool):
        raise TypeError(f"{name} is a shape, a tuple of sizes; got {shape!r}: give ({shape},)")
    return Size(shape)


def described(
    target: Target,
    event_shape: Sequence[int] | None,
    batch_shape: Sequence[int] | None,
    support: constraints.Constraint | None,
) -> tuple[Callable[[Tensor], Tensor], Size, Size, constraints.Constraint]:
    """The target's log density, batch shape, event shape and support."""
    event_shape = None if event_shape is None else checked_shape("event_shape", event_shape)
    batch_shape = None if batch_shape is None else checked_shape("batch_shape", batch_shape)
    refuse_models(target)
    if isinstance(target, Distribution):
        if event_shape is not None or batch_shape is not None or support is not None:
            raise ValueError("a distribution has its own event_shape, batch_shape and support: leave them out")
        if target.support is None or target.support.is_discrete:
            raise ValueError(f"a diffusion samples continuous densities, and {type(target).__name__} is discrete")
        return without_validation(target).log_prob, target.batch_shape, target.event_shape, target.support
    if not callable(target):
        raise TypeError(
            f"target is a log density (a callable), a Potential or a torch distribution; got {type(target).__name__}"
        )
    if isinstance(target, Constrained):
        own = (target.event_shape, target.support)
        if event_shape not in (None, own[0]) or support not in (None, own[1]):
            raise ValueError(f"{type(target).__name__} has its own event_shape and support: leave them out")
        return target.log_density, Size(batch_shape or ()), *own
    if isinstance(target, Potential) and event_shape is None and target.dim is not None:
        event_shape = (target.dim,)
    if event_shape is None:
        raise ValueError("event_shape says what points this target takes: give the shape of one, such as (20,) or ()")
    event = Size(event_shape)
    whole_space = constraints.independent(constraints.real, len(event)) if event else constraints.real
    log_density = Negative(target) if isinstance(target, Potential) else target
    return log_density, Size(batch_shape or ()), event, whole_space if support is None else support


def potential_of(
    target: Target,
    log_density: Callable[[Tensor], Tensor],
    batch_shape: Size,
    event_shape: Size,
    support: constraints.Constraint,
) -> Potential:
    """A Potential on all of ℝⁿ stays what it is, with the gradient it knows; all else goes through a bijection."""
    base = support.base_constraint if isinstance(support, constraints.independent) else support
    is_on_vectors = base is constraints.real and len(event_shape) == 1
    if isinstance(target, Potential) and isinstance(target, Constrained):
        return target
    if isinstance(target, Potential) and is_on_vectors and target.dim is not None:
        return target
    return UnconstrainedPotential(log_density, event_shape, support, batch_shape)


def without_validation(distribution: Distribution) -> Distribution:
    """The same distribution, parameters shared, that does not look at its arguments.

    A chain's points are in the support but for rounding: a sigmoid may well be 1.
    """
    silent = copy.copy(distribution)
    silent._validate_args = False
    for name, value in vars(distribution).items():
        if isinstance(value, Distribution):
            setattr(silent, name, without_validation(value))
    return silent


def diffusion_for(scheme: Integrator, potential: Potential, friction: float) -> Langevin | UnderdampedLangevin:
    """The diffusion that a scheme is for; overdamped if either is."""
    overdamped, underdamped = Langevin(potential), UnderdampedLangevin(potential, friction=friction)
    if scheme.is_for(underdamped) and not scheme.is_for(overdamped):
        return underdamped
    scheme.check(overdamped)
    return overdamped


def has_corner(target: Any) -> bool:
    """Whether the target is a Laplace distribution, or made from one."""
    if isinstance(target, Laplace):
        return True
    return isinstance(target, Distribution) and any(has_corner(part) for part in vars(target).values())


def tensor_wanted(potential: Potential, batch_shape: Size, dtype: torch.dtype) -> Tensor:
    """An empty tensor with the dtype and device that a function without tensors of its own gives for points of a dtype,
    or for points in float64 where it takes no other; with that of the points, where it takes none in what it gives."""
    for tried in dict.fromkeys((dtype, torch.float64)):
        energy = _energy_at_zero(potential, batch_shape, tried)
        if energy is None:
            continue
        wanted = energy.dtype if energy.dtype in PRECISIONS else tried
        if wanted != tried and _energy_at_zero(potential, batch_shape, wanted) is None:
            wanted = tried
        return energy.new_empty(0, dtype=wanted)
    return torch.empty(0, dtype=dtype)


def _energy_at_zero(potential: Potential, batch_shape: Size, dtype: torch.dtype) -> Tensor | None:
    assert potential.dim is not None
    try:
        with torch.no_grad():
            return potential(torch.zeros(1, *batch_shape, potential.dim, dtype=dtype))
    except Exception:  # of another dtype, or the user's own, which the run will raise again
        return None


def tensor_of(target: Any) -> Tensor:
    """A floating tensor of the target's, for its dtype and device; else one of torch's default dtype."""
    found = own_tensor(target)
    return torch.empty(0) if found is None else found


def own_tensor(target: Any) -> Tensor | None:
    """A floating tensor of the target's, if it shows any."""
    if isinstance(target, nn.Module):
        found = [t for t in (*target.parameters(), *target.buffers()) if t.is_floating_point()]
        if found:
            return found[0].detach()
    for value in vars(target).values() if isinstance(target, Distribution) else ():
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.detach()
        if isinstance(value, Distribution):
            return own_tensor(value)
    return None
