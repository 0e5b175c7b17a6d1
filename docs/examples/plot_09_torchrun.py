r"""
On several processes, to the same bits
======================================

Noise is a function of (seed, particle, step). So particles can live anywhere, and a
run over any number of processes has the bits of one process. Here torchrun starts one
process, and then three, for 100,000 particles among the arms of a pinwheel.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from safetensors.torch import load_file

# %%
# The job, as a user would keep it in a file of its own. Nobody holds all particles
# before ``gather``; statistics are added up along a tree that does not depend on how
# many processes there are.

JOB = """
import sys
import torch
from safetensors.torch import save_file
from torchsrk import Langevin, sample
from torchsrk.distributed import chunk, covariance, gather, mean, shard_rows, start
from torchsrk.potentials import FunctionPotential

def energy(x):  # five bent arms
    radius = (x.square().sum(-1) + 1e-6).sqrt()
    angle = torch.atan2(x[..., 1], x[..., 0])
    return 2.0 * (radius - 2.0).square() - 3.0 * torch.cos(5.0 * (angle - 0.5 * radius))

PARTICLES = 100_000
mesh = start(timeout=120)
rows = chunk(PARTICLES, mesh)
corners = 2.0 * torch.randn(PARTICLES, 2, generator=torch.Generator().manual_seed(0))
x0 = shard_rows(corners[rows.start : rows.stop], PARTICLES, mesh)
sde = Langevin(FunctionPotential(energy, dim=2))
options = {"step_size": 0.02, "num_steps": 200, "seed": 0, "compile": True}
run = sample(sde, x0, integrator="srk-ld", **options)
moments = {"mean": mean(run.final), "covariance": covariance(run.final)}
everything = gather(run.final, to=0)
if everything is not None:
    share = torch.tensor(len(rows))
    save_file({"x": everything, **moments, "rows": share}, sys.argv[1])
"""


def run_on(processes, folder):
    """What the job wrote on so many processes."""
    job, out = Path(folder, "job.py"), Path(folder, f"{processes}.safetensors")
    job.write_text(JOB)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
    ]
    subprocess.run([*torchrun, job, out], check=True, capture_output=True)
    return load_file(out)


with tempfile.TemporaryDirectory() as folder:
    one, three = run_on(1, folder), run_on(3, folder)

for name in ("x", "mean", "covariance"):
    print(f"{name:11s} the same bits: {torch.equal(one[name], three[name])}")

# %%
# On the left every process's own particles; on the right all of them.

x, share = three["x"], int(three["rows"])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.3), sharex=True, sharey=True)
for rank in range(3):
    left.scatter(
        *x[rank * share :][:6000].T,
        s=1.5,
        color=f"C{rank}",
        alpha=0.6,
        linewidths=0,
        label=f"rank {rank}",
    )
left.legend(loc="upper right", markerscale=6, fontsize=8)
left.set(title="6,000 particles of each of three processes", xticks=[], yticks=[])
right.hist2d(
    *x.T.numpy(), bins=240, range=((-4, 4), (-4, 4)), norm=LogNorm(), cmap="viridis"
)
right.set(title="100,000 particles: the bits of one process", aspect="equal")
plt.show()
