"""What a run may cost: memory, temporaries, the time to import."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.memory import run_numbers
from torchsrk import SDE, sample

LONG = """
from torchsrk import Langevin, sample
from torchsrk.potentials import GaussianMixture
sde = Langevin(GaussianMixture(torch.full((20,), 0.1)))
options = dict(integrator="srk-ld", step_size=0.1, seed=0, compile=sys.argv[1] == "compiled")
x0 = torch.zeros(int(sys.argv[2]), 20)
run = sample(sde, x0, num_steps=1000, **options)
before = peak()
sample(sde, run.final, first_step=1000, num_steps=int(sys.argv[3]), **options)
print(before, peak())
"""


@pytest.mark.parametrize(("how", "particles", "steps"), [("compiled", 8, 50_000), ("eager", 8, 5_000)])
def test_memory_is_flat_over_many_steps(how, particles, steps):
    before, after = run_numbers(LONG, how, str(particles), str(steps))
    assert after - before < 2.0  # MB; states alone, if kept, would be 3 and 32


LARGE = """
from torchsrk import Langevin, sample
from torchsrk.potentials import GaussianMixture
sde = Langevin(GaussianMixture(torch.full((100,), 0.05)))
options = dict(integrator="srk-ld", step_size=0.1, seed=0, compile=sys.argv[1] == "compiled")
sample(sde, torch.zeros(2000, 100), num_steps=1, **options)
before = peak()
x0 = torch.zeros(500_000, 100)
sample(sde, x0, num_steps=6, check_every=2, **options)  # so that states known to be finite change hands
print((peak() - before) * 2**20 / (x0.numel() * x0.element_size()))
"""


@pytest.mark.parametrize("how", ["compiled", "eager"])
def test_a_large_run_takes_three_times_its_state(how):
    """The start, which is the caller's, the state, and the last state known to be finite; then a few megabytes."""
    (times,) = run_numbers(LARGE, how)
    assert times < 3.1


class Largest(TorchDispatchMode):
    """Remembers the entries of the largest tensor that any operation made."""

    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [
            leaf.untyped_storage().nbytes() // leaf.element_size()
            for leaf in tree_leaves(result)
            if isinstance(leaf, torch.Tensor)
        ]
        self.entries = max([self.entries, *sizes])
        return result


@pytest.mark.parametrize(
    ("noise_type", "sigma", "most"),
    [
        ("diagonal", lambda x: 1.0 + 0.1 * x.sin(), 2),  # both stages of a particle
        ("scalar", lambda x: 1.0 + 0.1 * x.sin().unsqueeze(-1), 2),
        ("isotropic", lambda x: 1.0 + 0.1 * x.square().mean(-1), 2 * 30),  # the 2m stages, m = 30
    ],
)
def test_srk_id_makes_nothing_of_size_d_m_m(noise_type, sigma, most):
    particles, dim = 7, 30
    sde = SDE(torch.neg, sigma, noise_type)
    options = {"integrator": "srk-id", "step_size": 0.01, "num_steps": 1, "seed": 0}
    sample(sde, torch.ones(1, dim), **options)  # the noise kernel is checked when it is first used
    with Largest() as largest:
        sample(sde, torch.ones(particles, dim), **options)
    assert particles * dim <= largest.entries <= particles * dim * most


IMPORT = """
import time
start = time.process_time()
import torch
between = time.process_time()
import torchsrk
print((time.process_time() - between) / (between - start))
"""


def test_import_is_quick():
    """A small share of torch's own import: both are slower on a busy machine, their ratio is not. The best of a few."""
    command = [sys.executable, "-c", IMPORT]
    shares = (float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3))
    assert any(share < 0.25 for share in shares)
