"""Steps as one Triton kernel: the eager run's numbers, in Triton's interpreter, and what is refused.

Every scheme on every potential is in scripts/triton_table.py.
"""

import subprocess
import sys
from dataclasses import replace
from os import environ

import pytest
import torch

from tests.compiled.zoo import DIM, FUNCTIONS, networks
from tests.problems import mixture, potentials, sdes
from tests.test_family import SCHEMES
from tests.test_family import problem as family_problem
from torchsrk import Langevin, NonFiniteStateError, sample
from torchsrk.compiled import programs, triton_steps
from torchsrk.potentials import FunctionPotential, LogisticRegression
from torchsrk.sampling import problem_of

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(environ.get("TRITON_INTERPRET") != "1", reason="asks for TRITON_INTERPRET=1")
PARTICLES = 21


def start(particles, dim, dtype=torch.float64):
    return torch.randn(particles, dim, dtype=dtype, generator=torch.Generator().manual_seed(1))


def kernel_of(sde, x0, scheme, **options):
    """A program without the check beside eager steps, which would repair what it finds: bound to seed 5, particle 7."""
    problem = replace(problem_of(sde, x0, integrator=scheme, step_size=0.05, **options), language="triton")
    found = programs.find(problem)
    return found.steps.bind(problem, found.key, 5, 7, 1), problem.state


def assert_same(sde, x0, scheme, **options):
    bound, state = kernel_of(sde, x0, scheme, **options)
    found = bound.advance_rows(state, 0, first=3, last=5)
    run = {"step_size": 0.05, "num_steps": 2, "seed": 5, "first_step": 3, "first_particle": 7}
    plain = sample(sde, x0, state=state, integrator=scheme, **run, **options).state
    tolerance = 1e-13 if x0.dtype == torch.float64 else 2e-6
    torch.testing.assert_close(found, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if str(s) != "Ozaki()"], ids=str)
def test_every_scheme(scheme):
    dtype = (torch.float32, torch.float64)[SCHEMES.index(scheme) % 2]
    assert_same(family_problem(scheme, dtype), start(PARTICLES, DIM, dtype), scheme)


@pytest.mark.parametrize("name", potentials())
def test_shipped_potentials(name):
    for dtype, scheme in ((torch.float32, "em"), (torch.float64, "srk-ld")):
        potential, dim = potentials(dtype)[name]
        if name != "regression" or scheme == "em":
            assert_same(Langevin(potential), start(PARTICLES, dim, dtype), scheme)


@pytest.mark.parametrize("name", ["isotropic", "additive", "diagonal", "scalar", "timed"])
def test_sdes(name):
    sde, dim = sdes()[name]
    assert_same(sde, start(PARTICLES, dim), "em")


# The rest of the zoo sorts, decomposes matrices, or has functions that Triton has not.
_ZOO = (
    *("rosenbrock", "funnel", "banana", "mixture_by_logsumexp", "student", "normal_by_cholesky"),
    *(
        "quadratic_by_einsum",
        "norms",
        "clamps",
        "softmaxes",
        "joined",
        "indexed",
        "statistics",
        "special",
        "running",
        "framed",
    ),
)


@pytest.mark.parametrize("name", _ZOO)
def test_energies_as_users_write_them(name):
    assert_same(Langevin(FunctionPotential(FUNCTIONS[name])), start(PARTICLES, DIM), "em")


@pytest.mark.parametrize("name", ["silu", "norm"])
def test_networks(name):
    assert_same(Langevin(FunctionPotential(networks()[name].to(torch.float64))), start(5, DIM), "em")


def test_a_run_is_checked_and_has_the_eager_numbers():
    sde, x0 = Langevin(mixture(3)), start(PARTICLES, 3)
    options = {"integrator": "srk-ld", "step_size": 0.1, "num_steps": 4, "seed": 2, "thin": 2}
    found = sample(sde, x0, compile="triton", **options)  # a fallback would warn, which is an error here
    torch.testing.assert_close(found.trajectory, sample(sde, x0, **options).trajectory, rtol=1e-13, atol=1e-13)


def test_blocks_of_particles_do_not_matter(monkeypatch):
    bound, x = kernel_of(Langevin(mixture(3, torch.float32)), start(40, 3, torch.float32), "em")
    whole = bound.advance_rows(x, 0, first=0, last=2)
    monkeypatch.setattr(triton_steps, "_MOST_INTERPRETED", 16)
    assert torch.equal(bound.advance_rows(x, 0, first=0, last=2), whole)
    assert torch.equal(bound.advance_rows(x[5:], 5, first=0, last=2), whole[5:])
    halfway = bound.advance_rows(x, 0, first=0, last=1)
    assert torch.equal(bound.advance_rows(halfway, 0, first=1, last=2), whole)


def test_a_program_serves_other_step_sizes_and_parameters():
    target = mixture(3)
    sde, x0 = Langevin(target), start(PARTICLES, 3)
    first, _ = kernel_of(sde, x0, "em")
    problem = replace(problem_of(sde, x0, integrator="em", step_size=0.2), language="triton")
    found = programs.find(problem)
    bound = found.steps.bind(problem, found.key, 5, 7, 1)
    assert bound.kernel is first.kernel
    plain = sample(sde, x0, integrator="em", step_size=0.2, num_steps=1, seed=5, first_particle=7).final
    torch.testing.assert_close(bound.advance_rows(x0, 0, first=0, last=1), plain, rtol=1e-13, atol=1e-13)


def test_places_that_change_make_another_program():
    places = torch.tensor([2, 0, 1])
    sde = Langevin(FunctionPotential(lambda x: (x[..., places] * torch.arange(3.0, dtype=x.dtype)).square().sum(-1)))
    x0 = start(5, DIM)
    assert_same(sde, x0, "em")
    places.copy_(torch.tensor([0, 1, 2]))
    assert_same(sde, x0, "em")


REFUSED = {
    "mixes": (lambda x: (x - x.mean(0)).square().sum(-1), "a step mixes its particles"),
    "counts": (lambda x: x.square().sum(-1) * x.shape[0], "a step depends on the number of particles"),
    "rows": (lambda x: (x * torch.arange(len(x), dtype=x.dtype)[:, None]).square().sum(-1), "a step "),
    "sorts": (FUNCTIONS["ordered"], "a step in torch.float64 computes aten.sort"),
    "gammas": (lambda x: torch.lgamma(x.exp()).sum(-1), "a step uses digamma, which has no Triton form here"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    energy, reason = REFUSED[name]
    x0 = start(PARTICLES, DIM)
    options = {"integrator": "em", "step_size": 0.01, "num_steps": 2, "seed": 2}
    with pytest.warns(RuntimeWarning, match=rf'compile="triton": this run is eager, as .*{reason}'):
        found = sample(Langevin(FunctionPotential(energy)), x0, compile="triton", **options).final
    assert torch.equal(found, sample(Langevin(FunctionPotential(energy)), x0, **options).final)


def test_what_is_too_large_is_refused():
    target = LogisticRegression.synthetic(400, 20, seed=1, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="numbers a particle"):
        sample(
            Langevin(target), torch.zeros(5, 20), integrator="em", step_size=0.1, num_steps=1, seed=0, compile="triton"
        )


def test_a_state_that_explodes_is_reported():
    sde = Langevin(FunctionPotential(lambda x: x.pow(4).sum(-1)))
    with pytest.raises(NonFiniteStateError):
        sample(sde, 9 + start(5, 2), integrator="em", step_size=0.1, num_steps=30, seed=0, compile="triton")


_COMPILE = """
import importlib.util, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from torchsrk.brownian.triton_philox import LAUNCH
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    real = "*fp64" if "constexpr(tl.float64)" in open(path).read() else "*fp32"
    kinds = {name: "i64" for name in module.run.arg_names} | dict.fromkeys(("source", "out", "c", "p"), real)
    source = ASTSource(module.run, signature=kinds | {"numbers": "*fp64", "BLOCK": "constexpr"},
                       constexprs={"BLOCK": 128})
    assert triton.compile(source, target=GPUTarget("cuda", 80, 32), options=LAUNCH).asm["cubin"]
"""


def test_kernels_compile_for_a_gpu(tmp_path):
    """Which needs none: Triton's compiler and ptxas take what the interpreter took."""
    paths = []
    for dtype in (torch.float32, torch.float64):
        problem = problem_of(Langevin(mixture(3, dtype)), start(5, 3, dtype), integrator="srk-ld", step_size=0.05)
        paths.append(programs.find(replace(problem, language="triton")).steps.path)
    for name in ("special", "norms", "running"):
        problem = problem_of(Langevin(FunctionPotential(FUNCTIONS[name])), start(5, 3), integrator="em", step_size=0.05)
        paths.append(programs.find(replace(problem, language="triton")).steps.path)
    places = {**environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-c", _COMPILE, *paths], env=places, check=True)
