"""What people are told of a compiled step."""

import sys
from pathlib import Path

import torch
from torch import nn

from torchsrk import SDE, Langevin
from torchsrk.compiled import explain
from torchsrk.compiled.explain import _noise_time
from torchsrk.potentials import FunctionPotential
from torchsrk.sampling import problem_of

X = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_a_compiled_step_is_explained():
    network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    sde = Langevin(FunctionPotential(lambda x: network(x).squeeze(-1) + x.square().sum(-1), dim=2))
    found = explain(sde, "srk-ld", X)
    assert found.reason is None
    assert found.any_step_size
    assert "tanh.default" in found.graph
    assert "(particles, 16)" in found.graph
    kept = Path(found.path).read_text()
    assert found.source in kept
    parts = dict(found.parts)
    assert 0.0 < parts["noise"] <= parts["whole step"]
    shares = [nanoseconds for name, nanoseconds in found.parts if name not in ("noise", "whole step")]
    assert abs(sum(shares) + parts["noise"] - parts["whole step"]) < 1e-6 * parts["whole step"]
    text = str(found)
    assert all(part in text for part in (found.graph, found.source, found.path, "every step size"))


def test_an_eager_step_says_why():
    found = explain(
        Langevin(FunctionPotential(lambda x: (torch.fft.fft(x) + 9.0).sqrt().abs().sum(-1), dim=2)), "em", X
    )
    assert found.reason is not None
    assert str(found).startswith("This step runs eagerly, as tracing a step failed: a step uses aten")


def test_noise_that_needs_areas_is_explained():
    sde = SDE(lambda x: -x, lambda x: torch.diag_embed(1.0 + 0.1 * x.flip(-1).cos()), "general")
    assert "mm" in explain(sde, "srk-id", X, step_size=0.05).graph


def test_the_noise_of_one_particle_is_not_that_of_a_call():
    """A step of 1,000 rows of data draws two numbers."""
    data = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    sde = Langevin(FunctionPotential(lambda x: torch.nn.functional.softplus(x @ data.T).sum(-1) + x.square().sum(-1)))
    parts = dict(explain(sde, "em", torch.zeros(1, 2)).parts)
    assert parts["noise"] < 0.5 * parts["whole step"]


def test_noise_of_a_hundred_particles_is_not_that_of_calls(monkeypatch):
    """A call takes as long as drawing thousands of normals: so many at once that it does not count."""
    drawn = []
    monkeypatch.setattr(sys.modules[explain.__module__], "fill_normal", lambda out, **_: drawn.append(out.numel()))
    _noise_time(problem(100), 20, 100)
    assert max(drawn) >= 100_000


def test_a_step_that_is_hardly_more_than_its_noise_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules[explain.__module__], "_noise_time", lambda *_: 1e9)
    found = explain(Langevin(FunctionPotential(lambda x: x.square().sum(-1), dim=2)), "em", X)
    names = [name for name, _ in found.parts]
    assert names == ["whole step", "noise", "all else, too little to be told from noise"]


def problem(count):
    sde = Langevin(FunctionPotential(lambda x: x.square().sum(-1), dim=20))
    return problem_of(sde, torch.zeros(count, 20), integrator="em", step_size=0.1)
