"""Build and metadata of torchsrk.

The compiled pieces, the noise kernel and the assignment of points to points, are plain C loaded through ctypes. They
are optional: where no compiler is found the install goes on, and the same numbers come, more slowly, from tensor
operations and from other solvers.
"""

import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent

# No contraction to fused multiply-add: the kernel's bits must not depend on the processor (see philox.c).
NOISE_KERNEL = Extension(
    "torchsrk.brownian._philox",
    sources=["torchsrk/brownian/philox.c"],
    depends=sorted(map(str, Path("torchsrk/brownian").glob("philox_*.h"))),
    extra_compile_args=["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
    extra_link_args=["-lm", "-pthread"],
    optional=True,
)

ASSIGNMENT = Extension(
    "torchsrk.metrics._assignment",
    sources=["torchsrk/metrics/assignment.c"],
    depends=sorted(map(str, Path("torchsrk/metrics").glob("assignment_*.h"))),
    extra_compile_args=["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math"],
    extra_link_args=["-lm"],
    optional=True,
)

VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "torchsrk" / "version.py").read_text("utf-8"), re.M)[1]

EXAMPLES = ["scikit-learn>=1.4"]  # for its data sets
DIAGNOSTICS = ["arviz>=0.20"]
METRICS = ["POT>=0.9.4", "lapx>=0.11.1"]  # exact transport
PLOTS = ["matplotlib>=3.8"]
EXPERIMENTS = ["PyYAML>=6.0.1", "scipy>=1.11", *METRICS, *PLOTS]
KEOPS = ["pykeops>=2.2"]  # compiles with the machine's own compiler, when it is first used
TRITON = ["triton>=3.2; platform_system == 'Linux'"]  # there are no other wheels
PYRO = ["pyro-ppl>=1.9"]
SBI = ["sbi>=0.23"]  # brings tensorboard and much else along: in no other extra
ALL = [*EXPERIMENTS, *DIAGNOSTICS, *KEOPS, *TRITON, *PYRO]
DOCS = [
    *("sphinx>=8", "furo>=2024.8", "myst-parser>=4", "sphinx-gallery>=0.18", "sphinx-copybutton>=0.5"),
    *("sphinx-design>=0.6", "sphinx-mathjax-offline>=0.0.2", *EXAMPLES, *ALL),
]

setup(
    name="torchsrk",
    version=VERSION,
    description="Stochastic Runge-Kutta samplers for Langevin and other Itô diffusions in PyTorch",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    packages=find_packages(include=["torchsrk", "torchsrk.*"]),
    entry_points={"console_scripts": ["torchsrk = torchsrk.__main__:main"]},
    package_data={
        "torchsrk": ["py.typed", "configs/*.yaml"],
        "torchsrk.brownian": ["philox.c", "*.h"],
        "torchsrk.compiled": ["*.h", "*.c"],
        "torchsrk.experiments": ["*.mplstyle"],
        "torchsrk.metrics": ["assignment.c", "*.h"],
    },
    ext_modules=[NOISE_KERNEL, ASSIGNMENT],
    install_requires=[
        "torch>=2.6",
        "torchsde>=0.2.6",
        "numpy>=1.26",
        "tqdm>=4.66",
        "geomloss>=0.2.6",
        "safetensors>=0.4.3",
    ],
    extras_require={
        "dev": [
            *("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "ruff>=0.6", "mypy>=1.10"),
            *("types-tqdm", "types-PyYAML", *EXAMPLES, *ALL, *DOCS),
        ],
        "all": ALL,
        "metrics": METRICS,
        "plots": PLOTS,
        "experiments": EXPERIMENTS,
        "diagnostics": DIAGNOSTICS,
        "docs": DOCS,
        "examples": EXAMPLES,
        "keops": KEOPS,
        "pyro": PYRO,
        "sbi": SBI,
        "triton": TRITON,
        "bench": [
            *("jax>=0.10", "diffrax>=0.7", "blackjax>=1.7", "torchebm>=0.8", "posteriors>=0.1"),
            *("numpyro>=0.22", "pyro-ppl>=1.9", "nutpie>=0.16", "arviz>=0.20,<1", *EXAMPLES, *EXPERIMENTS),
        ],
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
)
