"""Build and metadata of torchsrk.

The one compiled piece, the noise kernel, is plain C loaded through ctypes. It is optional: where no compiler is found
the install goes on, and the same numbers come, more slowly, from tensor operations.
"""

from pathlib import Path

from setuptools import Extension, find_packages, setup

# No contraction to fused multiply-add: the kernel's bits must not depend on the processor (see philox.c).
NOISE_KERNEL = Extension(
    "torchsrk.brownian._philox",
    sources=["torchsrk/brownian/philox.c"],
    depends=[f"torchsrk/brownian/philox_{part}.h" for part in ("batch", "sets", "vector", "normals")],
    extra_compile_args=["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
    extra_link_args=["-lm", "-pthread"],
    optional=True,
)

EXAMPLES = ["scikit-learn>=1.4"]  # for its data sets
DIAGNOSTICS = ["arviz>=0.20"]

setup(
    name="torchsrk",
    version="0.1.0",
    description="Stochastic Runge-Kutta samplers for Langevin and other Itô diffusions in PyTorch",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    packages=[*find_packages(include=["torchsrk", "torchsrk.*"]), "torchsrk.configs"],
    package_dir={"torchsrk.configs": "configs"},
    entry_points={"console_scripts": ["torchsrk = torchsrk.cli:main"]},
    package_data={
        "torchsrk": ["py.typed"],
        "torchsrk.brownian": ["philox.c", "*.h"],
        "torchsrk.compiled": ["*.h", "*.c"],
        "torchsrk.configs": ["*.yaml"],
    },
    ext_modules=[NOISE_KERNEL],
    install_requires=[
        "torch>=2.6",
        "torchsde>=0.2.6",
        "numpy>=1.26",
        "tqdm>=4.66",
        "matplotlib>=3.8",
        "geomloss>=0.2.6",
        "POT>=0.9.4",
        "safetensors>=0.4.3",
        "PyYAML>=6.0.1",
    ],
    extras_require={
        "dev": [
            *("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "scipy>=1.11", "ruff>=0.6", "mypy>=1.10"),
            *("types-tqdm", "types-PyYAML", *EXAMPLES, *DIAGNOSTICS),
        ],
        "diagnostics": DIAGNOSTICS,
        "examples": EXAMPLES,
        "bench": [
            *("scipy>=1.11", "jax>=0.10", "diffrax>=0.7", "blackjax>=1.7", "torchebm>=0.8", "posteriors>=0.1"),
            *("numpyro>=0.22", "pyro-ppl>=1.9", "nutpie>=0.16", "arviz>=0.20,<1", *EXAMPLES),
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
