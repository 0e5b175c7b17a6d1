"""What can't be compiled runs eagerly, with the eager run's bits, after one warning that says why."""

import hashlib
import subprocess
import sys

import pytest
import torch

from tests import forks
from tests.problems import mixture
from torchsrk import ItoDiffusion, Langevin, sample
from torchsrk.brownian import FourierLevyArea, native
from torchsrk.compiled import build, compiling_pays, programs, recorded
from torchsrk.potentials import FunctionPotential, NonConvex

OPTIONS = {"step_size": 0.05, "num_steps": 4, "seed": 5}


def potential_of(function):
    return Langevin(FunctionPotential(function))


def by_value(x):
    return x.square().sum(-1) if x.sum() < 1e9 else x.sum(-1)


def by_hessian(x):  # its gradient has zeros that torch does not write, and that a dispatch mode may not touch
    hessians = torch.func.vmap(torch.func.hessian(lambda v: (v**4).sum()))(x)
    return x.square().sum(-1) + hessians.diagonal(dim1=-2, dim2=-1).sum(-1)


def one_by_one(x):  # so many operations that a second step to count them is not made
    energies = []
    for row in x:
        for _ in range(700):
            row = row * 0.999
        energies.append(row.square().sum())
    return torch.stack(energies)


NON_CONVEX = NonConvex(beta=2.0, gamma=0.5, dim=3)
CASES = {
    "mixes particles by a mean": (
        potential_of(lambda x: (x - x.mean(0)).square().sum(-1)),
        "em",
        "mixes its particles",
    ),
    "mixes particles by a product": (potential_of(lambda x: 1e-3 * (x @ x.T @ x).square().sum(-1)), "em", "particles"),
    "reads how many there are": (potential_of(lambda x: x.square().sum(-1) * len(x)), "em", "number of particles"),
    "joins particles": (potential_of(lambda x: torch.cat((x, x))[: len(x)].square().sum(-1)), "em", "particles"),
    "depends on values": (potential_of(by_value), "em", "tracing a step failed"),
    "unknown operation": (potential_of(lambda x: (torch.fft.fft(x) + 9.0).sqrt().abs().sum(-1)), "em", "has no C form"),
    "noise of its own": (
        potential_of(lambda x: (x + 0.0 * torch.randn(3)).square().sum(-1)),
        "em",
        "random numbers of its own",
    ),
    "picks particles": (potential_of(lambda x: (x - x[:1]).square().sum(-1)), "em", "particles"),
    "loops over particles": (potential_of(one_by_one), "em", "more than .* operations"),
    "other precision": (potential_of(lambda x: x.float().square().sum(-1).double()), "em", "float32"),
}


@pytest.mark.parametrize("name", CASES)
def test_says_why_and_runs(name, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_TRACED", 2_000)  # fewer, to be sooner there
    monkeypatch.setattr(recorded, "MOST_OPERATIONS", 15_000)
    sde, scheme, reason = CASES[name]
    x0 = torch.ones(6, 3)
    with pytest.warns(RuntimeWarning, match=f"compile=True: this run is eager, as .*{reason}") as warned:
        compiled = sample(sde, x0, integrator=scheme, compile=True, **OPTIONS).final
    assert [warning.category for warning in warned].count(RuntimeWarning) == 1  # torch itself may deprecate something
    assert torch.equal(compiled, sample(sde, x0, integrator=scheme, **OPTIONS).final)


def test_unwritten_zeros_are_zeros():
    sde, x0 = potential_of(by_hessian), torch.linspace(-1.0, 1.0, 18, dtype=torch.float64).view(6, 3)
    compiled = sample(sde, x0, integrator="em", compile=True, **OPTIONS).final
    torch.testing.assert_close(compiled, sample(sde, x0, integrator="em", **OPTIONS).final, rtol=1e-12, atol=1e-12)


def test_more_noise_than_a_cache_holds():
    sde = ItoDiffusion(NON_CONVEX, NON_CONVEX.scale, noise_type="isotropic")
    options = {"integrator": "srk-id", "levy_area": FourierLevyArea(3000), **OPTIONS}
    with pytest.warns(RuntimeWarning, match="more than 16384 normals a particle, for its Lévy areas"):
        compiled = sample(sde, torch.ones(6, 3), compile=True, **options).final
    assert torch.equal(compiled, sample(sde, torch.ones(6, 3), **options).final)


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path))
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    build._compiler.cache_clear()
    with pytest.warns(RuntimeWarning, match="no C compiler was found: install one"):
        sample(Langevin(mixture(4)), torch.zeros(6, 4), integrator="em", compile=True, **OPTIONS)
    build._compiler.cache_clear()


def test_with_a_compiler_that_fails(monkeypatch, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'out of order' >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_compiler", lambda: (str(broken),))
    with pytest.warns(RuntimeWarning, match="cc failed: out of order"):
        sample(Langevin(mixture(4)), torch.zeros(6, 4), integrator="em", compile=True, **OPTIONS)
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_the_noise_kernel(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    with pytest.warns(RuntimeWarning, match="noise kernel was not built"):
        sample(Langevin(mixture(4)), torch.zeros(6, 4), integrator="em", compile=True, **OPTIONS)


@pytest.mark.parametrize("problem", ["a file", "open to others"])
def test_a_cache_folder_that_others_could_write_to_is_refused(monkeypatch, tmp_path, problem):
    folder = tmp_path / "cache"
    if problem == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    monkeypatch.setenv("TORCHSRK_CACHE", str(folder))
    with pytest.warns(RuntimeWarning, match="is not a folder that this user owns"):
        sample(Langevin(mixture(4)), torch.zeros(6, 4), integrator="em", compile=True, **OPTIONS)


def full(*arguments):
    raise OSError(28, "No space left on device")


def with_a_folder_in_its_place(compile_as_it_is):
    def compile_then(source, flags, library):
        (library / "somebody's").mkdir(parents=True)
        compile_as_it_is(source, flags, library)

    return compile_then


@pytest.mark.parametrize("problem", ["full", "a folder in its place", "not executable"])
def test_a_cache_that_can_not_be_used(monkeypatch, tmp_path, problem):
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path / "cache"))
    if problem == "full":
        monkeypatch.setattr(build.os, "replace", full)
    elif problem == "a folder in its place":
        monkeypatch.setattr(build, "_compile", with_a_folder_in_its_place(build._compile))
    else:

        def refuse(path):
            raise OSError("failed to map segment from shared object")

        monkeypatch.setattr(build.ctypes, "CDLL", refuse)
    native.library()  # is there already
    sde, x0 = Langevin(mixture(4)), torch.zeros(6, 4)
    with pytest.warns(RuntimeWarning, match="can't be kept in .* or loaded from there .*: make room, or set TORCHSRK"):
        compiled = sample(sde, x0, integrator="em", compile=True, **OPTIONS).final
    assert torch.equal(compiled, sample(sde, x0, integrator="em", **OPTIONS).final)


def test_a_library_of_another_machine_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path))
    options = {"integrator": "em", "compile": True, **OPTIONS}
    first = sample(Langevin(mixture(4)), torch.zeros(6, 4), **options).final
    (library,) = tmp_path.glob("*.so")
    content = b"of another machine"
    library.unlink()  # it is loaded: to write into it would be to change the running program
    library.write_bytes(content + hashlib.sha256(content).digest())
    programs._PROGRAMS.clear()
    assert torch.equal(sample(Langevin(mixture(4)), torch.zeros(6, 4), **options).final, first)


def test_a_folder_for_one_process_is_gone_with_it(tmp_path):
    (tmp_path / "home").write_text("")  # where no cache folder can be made
    environment = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    command = [sys.executable, "-c", RUN, "compile"]
    subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert not list(tmp_path.glob("torchsrk*"))


RUN = """
import sys, torch, warnings
warnings.simplefilter("error")
from torchsrk import Langevin, sample
from torchsrk.potentials import GaussianMixture
from torchsrk.compiled import build
if sys.argv[1] == "from disk":
    def refuse(*arguments):
        raise AssertionError("compiled again")
    build._compile = refuse
for step_size in (0.1, 0.2):
    for particles in (5, 100):
        sde = Langevin(GaussianMixture(torch.full((4,), 0.3)))
        options = dict(integrator="em", step_size=step_size, num_steps=3, seed=0, compile=True)
        run = sample(sde, torch.zeros(particles, 4), **options)
print(run.final.sum().item())
"""


def test_a_library_is_compiled_once_and_found_by_the_next_process(tmp_path):
    """One library for any step size and any number of particles from five on; half of one is made again."""
    cache = tmp_path / "cache"
    environment = {"TORCHSRK_CACHE": str(cache), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def run(how):
        done = forks.run(RUN, how, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = run("compile")
    (library,) = cache.glob("*.so")
    assert run("from disk") == first
    library.write_bytes(library.read_bytes()[:1000])
    assert run("compile") == first
    (program,) = cache.glob("*.json")  # for the next process, beside the library for the machine and its C for people
    assert {*cache.iterdir()} == {program, library, library.with_suffix(".c")}


def test_auto_compiles_long_runs_alone(monkeypatch):
    few, many = torch.zeros(1, 4), torch.zeros(50_000, 20)
    assert not compiling_pays(1000, few.numel())
    assert compiling_pays(100_000, few.numel())
    assert compiling_pays(1000, many.numel())
    monkeypatch.setattr(build, "load", lambda *arguments: pytest.fail("a short run was compiled"))
    sample(Langevin(mixture(4)), torch.zeros(6, 4), integrator="em", compile="auto", **OPTIONS)


def test_the_progress_bar_shows_compiling(capsys):
    sample(Langevin(mixture(4)), torch.zeros(6, 4), integrator="em", compile=True, progress=True, **OPTIONS)
    assert "compiled in" in capsys.readouterr().err
