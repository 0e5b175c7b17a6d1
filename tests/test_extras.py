"""Without the packages of extras the core works, and what needs one says which."""

import subprocess
import sys

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
    import torchsrk.experiments.config

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
