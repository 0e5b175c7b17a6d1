"""Without the packages of extras the core works, and what needs one says which."""

import json
import subprocess
import sys

import pytest
import yaml

WITHOUT = """
import sys
for name in ("ot", "lap", "yaml", "matplotlib", "arviz", "pykeops", "triton"):
    sys.modules[name] = None  # as if it were not installed
import torch, torchsrk
from torchsrk.distributions import DiffusionDistribution
from torchsrk.metrics import energy_distance_squared, wasserstein2_squared
from torchsrk.potentials import GaussianMixture

target, x0 = GaussianMixture(shift=torch.ones(2)), torch.zeros(20, 2)
run = torchsrk.sample(torchsrk.Langevin(target), x0, integrator="em", step_size=0.1, num_steps=10, thin=1, seed=0)
DiffusionDistribution(torch.distributions.Normal(0.0, 1.0), step_size=0.1, num_steps=10).sample((5,))
energy_distance_squared(run.final, x0)

def said(function):
    try:
        function()
    except ImportError as error:
        print(error)

def experiments():
    from torchsrk.experiments.config import parse_yaml
    parse_yaml("a: 1", "here")

def plot():
    from torchsrk.plots import posterior_figure
    posterior_figure(run)

said(lambda: wasserstein2_squared(run.final, x0[:10]))
said(lambda: wasserstein2_squared(torch.rand(5, 65), torch.rand(5, 65)))  # in as many dimensions, or without a compiler
said(lambda: torchsrk.to_arviz(run))
said(experiments)
said(plot)
from torchsrk.__main__ import main
sys.argv = ["torchsrk", "list"]
print(main())
"""


def test_errors_name_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        'this needs POT: pip install "torchsrk[metrics]"',
        'this needs lapx: pip install "torchsrk[metrics]"',
        'this needs ArviZ: pip install "torchsrk[diagnostics]"',
        'this needs PyYAML: pip install "torchsrk[experiments]"',
        'this needs matplotlib: pip install "torchsrk[plots]"',
        "2",
    ]
    assert done.stderr.splitlines()[-1] == 'torchsrk: error: this needs PyYAML: pip install "torchsrk[experiments]"'


COMMANDS = """
import json, pathlib, sys
hidden, *lines = json.loads(sys.argv[1])
for name in hidden:
    sys.modules[name] = None
from torchsrk.__main__ import main
pathlib.Path("density.py").write_text("def f(x):\\n    return -0.5 * x.square().sum(-1)\\n")
for line in lines:
    sys.argv = ["torchsrk", *line.split()]
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    print("code", code)
"""

SAMPLE = "sample density.py:f --dim 2 --draws 2 --particles 64 --output"


def codes(tmp_path, hidden, *lines):
    """The exit codes of commands without some modules, and what was said on stderr."""
    command = [sys.executable, "-c", COMMANDS, json.dumps([hidden, *lines])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    return [int(line.split()[1]) for line in said if line.startswith("code ")], done.stderr.splitlines()


def test_without_yaml_only_configs_are_refused(tmp_path):
    found, said = codes(
        tmp_path, ["yaml", "ot", "lap"], "--version", "--help", "run --help", f"{SAMPLE} out", "run quickstart"
    )
    assert found[:3] == [0, 0, 0]
    assert found[3] in (0, 3)  # drawn, whatever is thought of so few draws
    assert yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())["target"] == "density.py:f"
    assert (tmp_path / "out" / "posterior.png").is_file()
    assert found[4] == 2
    assert said[-1] == 'torchsrk: error: this needs PyYAML: pip install "torchsrk[experiments]"'


@pytest.mark.parametrize(
    ("hidden", "line", "said"),
    [
        ("matplotlib", "run quickstart --output out", 'this needs matplotlib: pip install "torchsrk[experiments]"'),
        ("matplotlib", f"{SAMPLE} out", 'this needs matplotlib: pip install "torchsrk[plots]"'),
        ("scipy", "run quickstart --output out", 'this needs SciPy: pip install "torchsrk[experiments]"'),
    ],
    ids=["matplotlib, run", "matplotlib, sample", "scipy, run"],
)
def test_what_is_needed_is_looked_for_before_anything_is_computed(tmp_path, hidden, line, said):
    found, errors = codes(tmp_path, [hidden], line)
    assert (found, errors) == ([2], [f"torchsrk: error: {said}"])
    assert not (tmp_path / "out").exists()
