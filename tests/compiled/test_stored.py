"""Programs are kept on disk for the next process, which takes up the right one without tracing, or traces."""

import hashlib
import json
import os
import subprocess
import sys
import types

import pytest
import torch
from torch.distributions import StudentT

from tests.problems import mixture
from torchsrk import EulerMaruyama, Langevin, sample
from torchsrk.compiled import build, programs, stored
from torchsrk.compiled.lasting import lasting
from torchsrk.compiled.stored_graph import CannotStore
from torchsrk.integrators.capped import Capped
from torchsrk.potentials import FunctionPotential
from torchsrk.sampling import problem_of

OPTIONS = {"integrator": "em", "step_size": 0.05, "num_steps": 4, "seed": 5}


def used():
    """The program that a run has taken."""
    return next(reversed(programs._PROGRAMS.values()))


def as_in_a_new_process(sde, x0, **options):
    """A compiled run with no program in memory, which must be as an eager one, and whether it was traced."""
    programs._PROGRAMS.clear()
    compiled, eager = (sample(sde, x0, compile=way, **{**OPTIONS, **options}).final for way in (True, False))
    torch.testing.assert_close(compiled, eager, rtol=1e-11 if x0.dtype == torch.float64 else 1e-4, atol=1e-6)
    return used().stored_as is None


PROCESS = """
import sys, torch
from torch import nn
from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.compiled import programs
from torchsrk.compiled.trace import decompositions
from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression, Potential

torch.manual_seed(int(sys.argv[1]))  # the next process has other weights
layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

class Network(Potential):
    def __init__(self):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x).squeeze(-1) + 0.5 * x.square().sum(-1)

potentials = [
    GaussianMixture(torch.full((4,), 0.3)),
    LogisticRegression.synthetic(20, 4, seed=1),
    FunctionPotential(lambda x: layers(x).squeeze(-1) + 0.5 * x.square().sum(-1)),
    FunctionPotential(log_density=lambda x: -0.5 * x.square().sum(-1) - (x**4).sum(-1)),
    Network(),
]
for number, potential in enumerate(potentials):
    schemes = ("em", Langevin), ("srk-ld", Langevin), ("baoab", lambda f: UnderdampedLangevin(f, friction=1.5))
    for scheme, sde in (schemes[number % 3], schemes[(number + 1) % 3]):
        options = {"integrator": scheme, "step_size": 0.01 * int(sys.argv[1]), "num_steps": 3, "seed": 0}
        ends = [sample(sde(potential), torch.zeros(9, 4), compile=way, **options).final for way in (True, False)]
        assert torch.allclose(*ends, rtol=1e-4, atol=1e-5)
print("sympy" in sys.modules, decompositions.cache_info().currsize)
print([steps.stored_as is None for steps in programs._PROGRAMS.values()].count(True))
"""


def test_the_next_process_traces_nothing(tmp_path):
    """Usual densities and schemes, of other parameters and another step size."""
    environment = {"TORCHSRK_CACHE": str(tmp_path), "PATH": os.environ["PATH"]}

    def traced(number):
        command = [sys.executable, "-W", "error", "-c", PROCESS, str(number)]
        outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return outcome.stdout.split()

    assert traced(1)[-1] == "10"
    assert traced(2) == ["False", "0", "0"]  # neither what torch imports to trace, nor its tables
    assert len(list(tmp_path.glob("*.json"))) == 10


SOURCE = """
import math
import torch
from torch import nn
from torchsrk import Langevin
from torchsrk.potentials import FunctionPotential, Potential

FACTOR = 2.0

def scaled(x, power=2):
    return FACTOR * (x**power).sum(-1)

class Centred(Potential):
    shift = 0.5

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1) + scaled(x - self.shift)

def closed(factor):
    return lambda x: factor * x.square().sum(-1) + math.pi * x.cos().sum(-1)

torch.manual_seed(0)
targets = [Centred(), FunctionPotential(closed(1.5))]
"""
REWRITTEN = {
    "a constant of a lambda": ("math.pi * x.cos()", "2.5 * x.cos()"),
    "what a lambda calls": ("x.cos()", "x.sin()"),
    "a global": ("FACTOR = 2.0", "FACTOR = 3.0"),
    "a closure": ("closed(1.5)", "closed(2.5)"),
    "an activation": ("nn.Tanh()", "nn.Sigmoid()"),
    "a method": ("scaled(x - self.shift)", "scaled(x + self.shift)"),
    "a function that a method calls": ("FACTOR * (x**power)", "FACTOR * (x.abs() ** power)"),
    "a default": ("power=2", "power=4"),
    "a class attribute": ("shift = 0.5", "shift = 0.25"),
    "a width": ("nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)", "nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)"),
    "a layer's option": ("nn.Linear(4, 1)", "nn.Linear(4, 1, bias=False)"),
    "a layer more": ("nn.Tanh(),", "nn.Tanh(), nn.Tanh(),"),
}


def written(source):
    module = types.ModuleType("a_users_own")
    exec(source, vars(module))
    return [Langevin(target.double()) for target in module.targets]


@pytest.mark.parametrize("name", REWRITTEN)
def test_other_source_has_another_program(name, cache, monkeypatch):
    x0 = torch.linspace(-1.0, 1.0, 27).view(9, 3)
    assert all(as_in_a_new_process(sde, x0) for sde in written(SOURCE))
    before, after = REWRITTEN[name]
    assert before in SOURCE
    traced = [as_in_a_new_process(sde, x0) for sde in written(SOURCE.replace(before, after))]
    assert traced in ([True, False], [False, True])  # of the two, the one that was rewritten
    assert not any(as_in_a_new_process(sde, x0) for sde in written("\n\n" + SOURCE))  # moved, and not changed


def test_other_forms_and_options_have_another_program(cache):
    x0 = torch.linspace(-1.0, 1.0, 27).view(9, 3)
    sde = Langevin(FunctionPotential(lambda x: x.square().sum(-1)))
    assert as_in_a_new_process(sde, x0)
    assert not as_in_a_new_process(sde, x0)
    assert not as_in_a_new_process(sde, x0[:7], step_size=0.02)
    assert as_in_a_new_process(sde, x0.float())
    assert as_in_a_new_process(sde, x0[:, :2])
    assert as_in_a_new_process(sde, x0[:3])  # one by one
    assert as_in_a_new_process(sde, x0, integrator="srk-ld")
    assert as_in_a_new_process(sde, x0, integrator="lm")
    for cap in (0.5, 0.25):
        assert as_in_a_new_process(sde, x0, integrator=Capped(EulerMaruyama(), cap=cap))


def test_numbers_read_out_of_a_tensor_are_compared(cache):
    x0 = torch.linspace(-1.0, 1.0, 27).view(9, 3)
    scale = torch.tensor(2.0)
    sde = Langevin(FunctionPotential(lambda x: scale.item() * x.square().sum(-1)))
    assert as_in_a_new_process(sde, x0)
    assert not as_in_a_new_process(sde, x0)
    scale.fill_(3.0)
    assert as_in_a_new_process(sde, x0)


def test_tensors_that_a_step_makes_are_kept_by_their_values(cache):
    x0 = torch.linspace(-1.0, 1.0, 27).view(9, 3)
    sde = Langevin(FunctionPotential(log_density=lambda x: StudentT(3.0).log_prob(x).sum(-1)))
    assert as_in_a_new_process(sde, x0)
    assert not as_in_a_new_process(sde, x0)
    sde = Langevin(FunctionPotential(lambda x: (torch.tensor([1.0, 2.0, 3.0]) * x.square()).sum(-1)))
    assert as_in_a_new_process(sde, x0)
    assert not as_in_a_new_process(sde, x0)


def test_tensors_in_the_memory_of_others_are_not():
    weights = torch.ones(3)
    memories = {weights.untyped_storage().data_ptr()}
    assert stored._made_within(weights.clone(), memories)[0] == [3]
    with pytest.raises(CannotStore, match="no place"):
        stored._made_within(weights[1:], memories)


@pytest.mark.parametrize("read", [lambda w: w.data, lambda w: torch.tensor(w.tolist())])
def test_weights_read_otherwise_are_those_of_this_process(cache, read):
    x0, weights = torch.linspace(-1.0, 1.0, 27).view(9, 3), torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    sde = Langevin(FunctionPotential(lambda x: (read(weights) * x.square()).sum(-1)))
    for scale in (1.0, 2.0):
        weights.data *= scale
        as_in_a_new_process(sde, x0)
    assert not stored._REJECTED


def rewrite(file, change):
    """Change what a file says, with the digest that belongs to it."""
    content = change(json.loads(file.read_text().partition("\n")[2]))
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def with_other_numbers(data):
    data["literals"]["values"] = [3.0 * value for value in data["literals"]["values"]]
    return data


DAMAGE = {
    "half of it": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "nothing": lambda file: file.write_bytes(b""),
    "a byte": lambda file: file.write_bytes(file.read_bytes()[:-2] + b" }"),
    "no JSON": lambda file: rewrite(file, lambda data: "{"),
    "a list": lambda file: rewrite(file, lambda data: []),
    "no graph": lambda file: rewrite(file, lambda data: {**data, "graph": {}}),
    "another library": lambda file: rewrite(file, lambda data: {**data, "library": "../" + data["library"]}),
    "an unknown operation": lambda file: rewrite(
        file, lambda data: {**data, "graph": {**data["graph"], "calls": [["os.system", ["true"], {"named": {}}, None]]}}
    ),
    "other tensors": lambda file: rewrite(file, lambda data: {**data, "constants": [7]}),
    "other numbers": lambda file: rewrite(file, with_other_numbers),
    "open to a group": lambda file: file.chmod(0o620),
    "open to all": lambda file: file.chmod(0o602),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_not_as_it_was_made_is_not_used_and_is_made_again(name, cache):
    sde, x0 = Langevin(mixture(4)), torch.linspace(-1.0, 1.0, 36).view(9, 4)
    assert as_in_a_new_process(sde, x0)
    (file,) = cache.glob("*.json")
    DAMAGE[name](file)
    assert as_in_a_new_process(sde, x0)
    assert not as_in_a_new_process(sde, x0)
    assert not file.stat().st_mode & 0o077


def test_a_library_that_is_gone_is_made_again(empty):
    sde, x0 = Langevin(mixture(4)), torch.linspace(-1.0, 1.0, 36).view(9, 4)
    assert as_in_a_new_process(sde, x0)
    (library,) = empty.glob("*.so")
    library.unlink()
    assert as_in_a_new_process(sde, x0)
    assert library.exists()


def test_what_is_read_is_the_users_own(tmp_path, monkeypatch):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"content")
    file.chmod(0o600)
    link.symlink_to(file)
    assert build.read_own(file) == b"content"
    assert build.read_own(link) is None
    assert build.read_own(tmp_path) is None
    file.chmod(0o660)
    assert build.read_own(file) is None
    file.chmod(0o600)
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    assert build.read_own(file) is None


def name_of(energy=lambda x: x.square().sum(-1)):
    sde = Langevin(FunctionPotential(energy))
    return lasting(problem_of(sde, torch.zeros(9, 3), integrator="em", step_size=0.1))


@pytest.mark.parametrize(
    ("where", "name"),
    [(torch, "tanh"), (torch.nn.functional, "gelu"), (torch.Tensor, "square"), (FunctionPotential, "forward")],
)
def test_no_program_is_named_while_a_function_is_replaced(where, name, monkeypatch, cache):
    assert name_of() is not None
    original = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *args, **options: original(*args, **options))
    assert name_of() is None


def test_no_program_is_named_under_a_mode(cache):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Mode():
        assert name_of() is None
    with torch.autocast("cpu", torch.bfloat16):
        assert name_of() is None


UNKNOWN = {
    "an iterator": (lambda values: lambda x: x.square().sum(-1) * len(list(values)))(iter([1.0])),
    "an address": lambda x: x.square().sum(-1) * (id(x) % 2),
    "a file": lambda x: x.square().sum(-1) * torch.load("weights.pt"),
    "the machine": lambda x: x.square().sum(-1) * torch.get_num_threads(),
    "a generator": (lambda generator: lambda x: x.square().sum(-1) * generator.initial_seed())(torch.Generator()),
    "a name that is nowhere": lambda x: x.square().sum(-1) * nowhere,  # noqa: F821
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_told_by_its_parts_has_no_name(name, cache):
    assert name_of(UNKNOWN[name]) is None
