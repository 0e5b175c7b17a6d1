"""Every wrong input is one clear error that says what was given, what was expected and the way out."""

import pytest
import torch

from tests.problems import mixture, networks, sdes
from torchsrk import SDE, SRKLD, ItoDiffusion, Langevin, integrate, sample
from torchsrk.brownian import BrownianPath, FreshNoise, fill_normal
from torchsrk.potentials import (
    Banana,
    DistributionPotential,
    FunctionPotential,
    GaussianMixture,
    LogisticRegression,
    NonConvex,
)
from torchsrk.reference import fit_order

NAN = float("nan")


def run(sde=None, x0=None, **changes):
    sde = Langevin(mixture(3)) if sde is None else sde
    x0 = torch.zeros(4, 3) if x0 is None else x0
    return sample(sde, x0, **({"integrator": "srk-ld", "step_size": 0.1, "num_steps": 3, "seed": 0} | changes))


def solve(**changes):
    arguments = {"ts": (0.0, 1.0), "integrator": "em", "step_size": 0.1, "seed": 0} | changes
    return integrate(Langevin(mixture(3)), torch.zeros(4, 3), arguments.pop("ts"), **arguments)


def with_energy(energy):
    return lambda: run(Langevin(FunctionPotential(energy)))


def with_sde(drift, diffusion, noise_type, scheme="srk-id"):
    return lambda: run(SDE(drift, diffusion, noise_type), integrator=scheme)


BAD = {
    # the state
    "x0 of the wrong dimension": (lambda: run(x0=torch.zeros(4, 2)), ValueError, r"dimension 3; x0 has shape \(4, 2\)"),
    "x0 without a dimension": (lambda: run(x0=torch.tensor(1.0)), ValueError, r"x0 is \(\.\.\., dim\)"),
    "no particles": (lambda: run(x0=torch.zeros(0, 3)), ValueError, "at least one particle"),
    "integer x0": (lambda: run(x0=torch.zeros(4, 3, dtype=torch.int64)), TypeError, "float32 or float64.*int64"),
    "half x0": (lambda: run(x0=torch.zeros(4, 3, dtype=torch.float16)), TypeError, "float32 or float64.*float16"),
    "x0 is a list": (lambda: run(x0=[[0.0, 0.0, 0.0]]), TypeError, "tensor.*got list"),
    "NaN start": (lambda: run(x0=torch.full((4, 3), NAN)), ValueError, "12 entries that are infinite or NaN"),
    "x0 in another dtype than the SDE": (
        lambda: run(x0=torch.zeros(4, 3, dtype=torch.float32)),
        TypeError,
        r"x0 is torch.float32 on cpu, but the SDE's potential.shift is torch.float64.*sde.to",
    ),
    "x0 on another device than the SDE": (
        lambda: run(sde=Langevin(mixture(3)).to("meta")),
        TypeError,
        "x0 is torch.float64 on cpu.*on meta",
    ),
    # sizes and counts
    "zero step size": (lambda: run(step_size=0.0), ValueError, "step_size is a positive number; got 0.0"),
    "negative step size": (lambda: run(step_size=-0.1), ValueError, "step_size is a positive number"),
    "infinite step size": (lambda: run(step_size=float("inf")), ValueError, "step_size is a positive number"),
    "NaN step size": (lambda: run(step_size=NAN), ValueError, "step_size is a positive number"),
    "step size in words": (lambda: run(step_size="0.1"), ValueError, "step_size is a positive number; got '0.1'"),
    "no steps": (lambda: run(num_steps=0), ValueError, "num_steps is an integer, at least 1; got 0"),
    "half a step": (lambda: run(num_steps=2.5), ValueError, "num_steps is an integer"),
    "negative burn-in": (lambda: run(burn_in=-1), ValueError, "burn_in is an integer, at least 0"),
    "thin 0": (lambda: run(thin=0), ValueError, "thin is an integer, at least 1"),
    "check never": (lambda: run(check_every=0), ValueError, "check_every is an integer"),
    "compile what": (lambda: run(compile="yes"), ValueError, "compile is True, False"),
    "steps beyond the counter": (lambda: run(first_step=2**48), ValueError, "steps are numbered from 0"),
    "blocks of nothing": (lambda: run(block_size=0), ValueError, "block_size is an integer"),
    "negative first step": (lambda: run(first_step=-1), ValueError, "first_step is an integer"),
    "negative first particle": (lambda: run(first_particle=-1), ValueError, "first_particle is an integer"),
    "negative seed": (lambda: run(seed=-1), ValueError, r"seed is an integer from 0 to 2\*\*64 - 1; got -1"),
    "seed of the wrong type": (lambda: run(seed=1.5), ValueError, "seed is an integer"),
    "too many particles": (lambda: run(first_particle=2**32 - 2), ValueError, "particles are numbered"),
    "too many steps": (lambda: run(first_step=2**48), ValueError, "steps are numbered"),
    # the scheme
    "mistyped scheme": (lambda: run(integrator="srk_ld"), ValueError, r"integrator 'srk_ld' \(did you mean srk-ld\?\)"),
    "a scheme in capitals": (lambda: run(integrator="BAOAB"), ValueError, r"'BAOAB' \(did you mean baoab\?\)"),
    "unknown scheme": (lambda: run(integrator="rk4"), ValueError, "unknown integrator 'rk4'; choose from 'baoab', "),
    "a scheme's class": (lambda: run(integrator=SRKLD), ValueError, "pass an instance"),
    "SRK-LD on state-dependent noise": (
        lambda: run(sdes()["general"][0]),
        ValueError,
        "SRKLD serves additive noise, and this SDE has general noise. Schemes that serve it: 'em', 'srk-id'",
    ),
    # the SDE
    "a potential for an SDE": (lambda: run(mixture(3)), TypeError, r"For a potential: Langevin\(potential\)"),
    "a function for a potential": (lambda: Langevin(torch.sin), TypeError, "FunctionPotential wraps"),
    "unknown noise type": (lambda: SDE(torch.neg, torch.sin, "full"), ValueError, "unknown noise type 'full'; choose"),
    "non-callable drift": (lambda: SDE(3.0, torch.sin, "diagonal"), TypeError, "drift is a callable.*float"),
    "constant diffusion that is not additive": (
        lambda: SDE(torch.neg, 2.0, "diagonal"),
        TypeError,
        "callable or nn.Module for diagonal noise; a constant float is additive noise",
    ),
    "vector for a constant diffusion": (
        lambda: SDE(torch.neg, torch.ones(3), "additive"),
        ValueError,
        r"number or a \(dim, brownian\) matrix; got \(3,\)",
    ),
    "columns without a matrix": (
        lambda: SDE(torch.neg, torch.sin, "diagonal", columns=torch.sin),
        TypeError,
        "goes with noise_type='general'",
    ),
    "drift of the wrong shape": (
        with_sde(lambda x: x.sum(-1, keepdim=True), torch.cos, "diagonal"),
        ValueError,
        r"drift must return the shape of x: for x of shape \(4, 3\) it returned shape \(4, 1\)",
    ),
    "drift of the wrong dtype": (
        with_sde(lambda x: -x.float(), torch.cos, "diagonal"),
        TypeError,
        "drift returned torch.float32 on cpu for x in torch.float64",
    ),
    "drift that returns a number": (
        with_sde(lambda x: 0.0, torch.cos, "diagonal"),
        TypeError,
        "drift must return a tensor",
    ),
    "general noise given a vector": (
        with_sde(torch.neg, torch.cos, "general"),
        ValueError,
        r"diffusion must return \(\.\.\., dim, brownian\) for general noise",
    ),
    "diagonal noise given a matrix": (
        with_sde(torch.neg, torch.diag_embed, "diagonal"),
        ValueError,
        r"\(\.\.\., dim\), the diagonal for diagonal noise",
    ),
    "isotropic noise given a vector": (
        with_sde(torch.neg, torch.cos, "isotropic"),
        ValueError,
        "one number a particle",
    ),
    "scalar noise given a vector": (with_sde(torch.neg, torch.cos, "scalar"), ValueError, "a column for scalar noise"),
    "additive noise of the wrong dimension": (
        with_sde(torch.neg, torch.eye(2, dtype=torch.float64), "additive", "srk-ld"),
        ValueError,
        "constant .dim, brownian. matrix for additive noise",
    ),
    "skew part that is not skew": (
        lambda: ItoDiffusion(mixture(3), 1.0, torch.eye(3), noise_type="additive"),
        ValueError,
        "skew = -skew",
    ),
    "skew part of the wrong kind": (
        lambda: ItoDiffusion(mixture(3), 1.0, 2.0, noise_type="additive"),
        TypeError,
        "skew is a tensor, a callable or None; got float",
    ),
    "skew field of the wrong shape": (
        lambda: run(ItoDiffusion(mixture(3), 1.0, lambda x: x, noise_type="additive")),
        ValueError,
        r"skew must return \(\.\.\., dim, dim\)",
    ),
    # energies
    "vector energy": (with_energy(torch.square), ValueError, r"one number a point.*expected \(4,\), got \(4, 3\)"),
    "total energy": (with_energy(torch.sum), ValueError, r"expected \(4,\), got \(\)"),
    "unsqueezed energy": (with_energy(lambda x: x[:, :1]), ValueError, "squeeze the network's output"),
    "energy that is a number": (with_energy(lambda x: 1.0), TypeError, "an energy must be a tensor"),
    "non-callable energy": (lambda: FunctionPotential(3), TypeError, "callable.*got int"),
    "shift of the wrong shape": (lambda: GaussianMixture(torch.ones(2, 2)), ValueError, r"vector \(dim,\)"),
    "NaN shift": (lambda: GaussianMixture(torch.tensor([NAN])), ValueError, "finite"),
    "banana without width": (lambda: Banana(0.0), ValueError, "spread is a positive number; got 0.0"),
    "negative beta": (lambda: NonConvex(-1.0, 0.5, 3), ValueError, "beta and gamma are positive"),
    "non-convex in no dimension": (lambda: NonConvex(1.0, 0.5, 0), ValueError, "dim is a positive integer"),
    "labels that are not labels": (
        lambda: LogisticRegression(torch.ones(3, 2), torch.tensor([0.0, 1.0, 2.0])),
        ValueError,
        "zeros and ones",
    ),
    "NaN features": (
        lambda: LogisticRegression(torch.full((3, 2), NAN), torch.ones(3)),
        ValueError,
        "non-finite entries",
    ),
    "negative precision": (
        lambda: LogisticRegression(torch.ones(3, 2), torch.ones(3), alpha=-1.0),
        ValueError,
        "alpha is a finite non-negative",
    ),
    "no observations": (lambda: LogisticRegression.synthetic(0, 2, seed=0), ValueError, "positive; got 0 and 2"),
    "distribution with a batch": (
        lambda: DistributionPotential(torch.distributions.Normal(torch.zeros(3), 1.0)),
        ValueError,
        "Independent turns batch dimensions",
    ),
    "distribution on the half line": (
        lambda: DistributionPotential(torch.distributions.Gamma(1.0, 1.0)),
        ValueError,
        "UnconstrainedPotential takes it",
    ),
    "not a distribution": (lambda: DistributionPotential(torch.sin), TypeError, "Distribution; got"),
    # integrate
    "one time": (lambda: solve(ts=(0.0,)), ValueError, "two or more increasing times"),
    "times that fall": (lambda: solve(ts=(1.0, 0.0)), ValueError, "these decrease"),
    "times of each particle's own": (
        lambda: solve(ts=[[0.0, 1.0], [0.0, 2.0]]),
        ValueError,
        r"ts is one grid of times \(times,\) for all particles; got 2 rows.*read each particle's rows",
    ),
    "times in a matrix": (lambda: solve(ts=torch.zeros(3, 2)), ValueError, r"one grid of times.*shape \(3, 2\)"),
    "times in rows of tensors": (lambda: solve(ts=[torch.zeros(2), torch.ones(2)]), ValueError, "one grid of times"),
    "a number for times": (lambda: solve(ts=1.0), ValueError, "two or more increasing times.*; got 1.0"),
    "a scalar for times": (lambda: solve(ts=torch.tensor(1.0)), ValueError, r"two or more .*; got tensor\(1"),
    "no times": (lambda: solve(ts=None), ValueError, "two or more increasing times.*; got None"),
    "times in words": (lambda: solve(ts="01"), ValueError, "two or more increasing times.*; got '01'"),
    "times that are words": (lambda: solve(ts=["0", "1"]), ValueError, "two or more increasing times"),
    "infinite times": (lambda: solve(ts=[0.0, float("inf")]), ValueError, "all finite.*inf"),
    "one length for step_sizes": (
        lambda: solve(step_size=None, step_sizes=0.1),
        ValueError,
        "one positive number for every step; got 0.1. One length for all steps is step_size=",
    ),
    "a scalar for step_sizes": (
        lambda: run(step_size=None, step_sizes=torch.tensor(0.1), num_steps=None),
        ValueError,
        "for every step; got tensor",
    ),
    "step_sizes in words": (lambda: run(step_size=None, step_sizes="0.1"), ValueError, "for every step; got '0.1'"),
    "step_sizes of nothing": (lambda: run(step_size=None, step_sizes=[None]), ValueError, "for every step; got .None"),
    "step_sizes that are over": (
        lambda: run(step_size=None, step_sizes=[0.1, 0.1, 0.1], num_steps=None, first_step=3),
        ValueError,
        "step_sizes has the lengths of 3 steps, .* first_step=3 and burn_in=0 leave none",
    ),
    "NaN times": (lambda: solve(ts=(0.0, NAN)), ValueError, "two or more increasing times"),
    "no noise": (lambda: solve(seed=None), ValueError, "exactly one of seed= .* and path="),
    "two noises": (
        lambda: solve(path=BrownianPath((4, 3), num_steps=10, seed=0)),
        ValueError,
        "exactly one of seed= .* and path=",
    ),
    "path of another shape": (
        lambda: solve(seed=None, path=BrownianPath((4, 2), num_steps=10, seed=0)),
        ValueError,
        r"path has shape \(4, 2\).*needs \(4, 3\)",
    ),
    "path too coarse": (
        lambda: solve(seed=None, path=BrownianPath((4, 3), num_steps=5, seed=0)),
        ValueError,
        "not on the path's grid",
    ),
    # noise
    "noise in integers": (
        lambda: fill_normal(torch.zeros(2, 2, dtype=torch.int64), seed=0, stream=0),
        TypeError,
        "float32 or float64",
    ),
    "noise over strides": (
        lambda: fill_normal(torch.zeros(4, 4).T[:2], seed=0, stream=0),
        ValueError,
        "must be contiguous",
    ),
    "components inside a block": (
        lambda: fill_normal(torch.zeros(2, 2), seed=0, stream=0, first_component=2),
        ValueError,
        "a multiple of 4; got 2",
    ),
    # orders
    "an order from one step size": (lambda: fit_order([0.1], torch.ones(1, 5)), ValueError, "two or more different"),
    "an order of no error": (lambda: fit_order([0.1, 0.2], torch.zeros(2, 5)), ValueError, "not positive"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_clear_error(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message) as caught:
        call()
    assert caught.type is error
    assert len(str(caught.value)) < 500


def test_a_good_call_among_the_bad_ones():
    """The table's base calls work: what fails in it fails for the reason named."""
    assert run().final.isfinite().all()
    assert solve().isfinite().all()
    assert run(networks(3), integrator="srk-id").final.isfinite().all()
    noise = FreshNoise(0, (4, 3), dtype=torch.float64, device=torch.device("cpu"))
    assert noise.levy_area.num_terms(0.1, 3) >= 1
