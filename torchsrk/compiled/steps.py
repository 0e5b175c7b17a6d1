"""Compiled steps: traced from an SDE and a scheme, run over all particles in one call."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Hashable, Sequence
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx

from ..brownian import LevyArea, MrongowiusRoesslerLevyArea, native
from ..integrators import Integrator
from ..potentials.base import is_stateful
from ..sde import BaseSDE
from . import build
from .fingerprint import fingerprint
from .lowering import StepCode, lower
from .trace import CannotCompile, NoiseInput, noise_inputs, trace_step
from .writer import evaluate

# Two counts of particles that no dimension of a problem is likely to have; steps traced with either must agree.
_MARKERS = (7907, 7919)
# A particle's noise for one step, beyond which a tile's is far from fitting any cache.
_MOST_NORMALS = 1 << 14
# Starting a second thread costs about as long as this many normals and their share of a step.
_NUMBERS_PER_THREAD = 1 << 17

# Seconds: of an eager gradient and its share of the step, for each call and for each number; of compiling.
_EAGER_CALL, _EAGER_NUMBER, _COMPILING = 40e-6, 2e-9, 1.0

# So few particles run one by one, with vectors along a particle's entries; more run side by side in a vector's lanes.
_FEW = 4
_ACCUMULATORS = {True: 64, False: 8}
# Lets the compiler add up a sum in several parts. NaN and infinity keep their meaning.
_REORDER = ("-fassociative-math", "-fno-signed-zeros")

_REALS = {torch.float32: ("float", "int32_t", "x##f"), torch.float64: ("double", "int64_t", "x")}


class _Run(ctypes.Structure):
    """The struct Run of driver.c."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("particles", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("first_step", ctypes.c_uint64),
        ("first_particle", ctypes.c_uint32),
        ("step_size", ctypes.c_double),
        ("scales", ctypes.c_void_p),
        ("literals", ctypes.c_void_p),
        ("uniforms", ctypes.c_void_p),
        ("draw", ctypes.c_void_p),
    )


class CompiledSteps:
    """A scheme's steps on an SDE as one C function.

    The numbers are those of the eager step up to rounding, and the same bits whatever the number of threads, the way a
    run is cut into calls or, from five particles on, the batch.
    """

    def __init__(
        self,
        code: StepCode,
        library: ctypes.CDLL,
        module: fx.GraphModule,
        noise: Sequence[NoiseInput],
        step_size: float,
    ) -> None:
        self._code, self._library, self._module = code, library, module
        self._noise, self._step_size = noise, step_size
        self.seconds = 0.0  # that it took to get here

    def bind(self, like: Tensor, seed: int, first_particle: int, threads: int) -> BoundSteps:
        """Ready to run: what does not depend on the state is computed here, from the parameters as they are now."""
        literals = torch.tensor(self._code.literals or (0.0,), dtype=like.dtype)
        uniforms = [tensor.to(like.dtype).contiguous() for tensor in evaluate(self._module, self._code.uniforms)]
        pointers = (ctypes.c_void_p * max(1, len(uniforms)))(*(tensor.data_ptr() for tensor in uniforms))
        scales = torch.tensor([source.scale for source in self._noise], dtype=torch.float64)
        kernel = native.library()
        assert kernel is not None
        run = _Run(
            seed=seed,
            first_particle=first_particle,
            step_size=self._step_size,
            scales=scales.data_ptr(),
            literals=literals.data_ptr(),
            uniforms=ctypes.addressof(pointers),
            draw=ctypes.cast(kernel.torchsrk_fill_tile, ctypes.c_void_p).value,
        )
        return BoundSteps(self._library, run, threads, (literals, uniforms, pointers, scales))


class BoundSteps:
    """Compiled steps with their parameters and seed; ``alive`` holds what ``run`` points to."""

    def __init__(self, library: ctypes.CDLL, run: _Run, threads: int, alive: Any) -> None:
        self._library, self._run, self._threads, self._alive = library, run, threads, alive

    def advance(self, source: Tensor, out: Tensor, first: int, last: int) -> None:
        """Write to ``out`` the contiguous states ``source`` (..., dim) of step ``first``, taken to step ``last``."""
        run = self._run
        run.source, run.out = source.data_ptr(), out.data_ptr()
        run.particles, run.steps, run.first_step = source.numel() // source.shape[-1], last - first, first
        work = source.numel() * (last - first)
        threads = min(self._threads, 1 + work // _NUMBERS_PER_THREAD)
        if self._library.torchsrk_run(ctypes.byref(run), threads):
            raise MemoryError("no memory for the workspace of a compiled step")


# Steps kept for an SDE. More are seldom asked for in turns, unless the SDE changes with every call.
_MOST_KEPT = 16
_COMPILED: WeakKeyDictionary[BaseSDE, dict[Hashable, CompiledSteps]] = WeakKeyDictionary()


def compiled_steps(
    sde: BaseSDE, scheme: Integrator, step_size: float, state: Tensor, brownian: int, levy_area: LevyArea | None = None
) -> CompiledSteps:
    """The steps of a scheme on an SDE, for states like ``state``: compiled, unless they were before.

    Raises:
        CannotCompile: the message says why.
    """
    if state.device.type != "cpu":
        raise CannotCompile(f"compiled steps run on the CPU and the state is on {state.device}")
    if state.ndim > 2:
        raise CannotCompile(
            f"compiled steps take states (particles, dim) and these are {tuple(state.shape)}: flatten the leading "
            "dimensions if the SDE treats all particles alike"
        )
    start = time.perf_counter()
    levy_area = MrongowiusRoesslerLevyArea() if levy_area is None else levy_area
    kept = _COMPILED.setdefault(sde, {})
    one_by_one = state.numel() <= _FEW * state.shape[-1]
    form = (state.shape[-1], brownian, state.dtype, one_by_one)
    key = (type(scheme), repr(scheme), step_size, repr(levy_area), *form, fingerprint(sde))
    if key not in kept:
        kept[key] = _compile(sde, scheme, step_size, levy_area, *form)
        kept[key].seconds = time.perf_counter() - start
        while len(kept) > _MOST_KEPT:
            del kept[next(iter(kept))]  # the oldest
    return kept[key]


def compiling_pays(scheme: Integrator, state: Tensor, steps: int) -> bool:
    """Whether an eager run of so many steps would take longer than compiling, from what steps usually cost."""
    gradients = scheme.gradients_per_step * steps
    return gradients * (_EAGER_CALL + _EAGER_NUMBER * state.numel()) > _COMPILING


def _compile(
    sde: BaseSDE,
    scheme: Integrator,
    step_size: float,
    levy_area: LevyArea,
    dim: int,
    brownian: int,
    dtype: torch.dtype,
    one_by_one: bool,
) -> CompiledSteps:
    if native.library() is None:
        raise CannotCompile("the noise kernel was not built, for want of a C compiler")
    if is_stateful(sde):
        raise CannotCompile("the potential changes with every gradient, as one that draws minibatches does")
    noise = noise_inputs(sde, scheme, step_size, brownian, levy_area)
    if sum(source.components for source in noise) > _MOST_NORMALS:
        raise CannotCompile(f"a step draws more than {_MOST_NORMALS} normals a particle, for its Lévy areas")
    traced = [trace_step(sde, scheme, step_size, dim, dtype, noise, levy_area, marker) for marker in _MARKERS]
    try:
        codes = [lower(step, _ACCUMULATORS[one_by_one]) for step in traced]
    except CannotCompile:
        raise
    except Exception as error:  # a graph that this compiler was not made for must not cost the user the run
        raise CannotCompile(f"a step has an unexpected form ({type(error).__name__}: {error})") from error
    if (codes[0].source, codes[0].literals) != (codes[1].source, codes[1].literals):
        raise CannotCompile("a step depends on the number of particles")
    library = build.load(_program(codes[0], dim, dtype, noise, one_by_one), _REORDER if one_by_one else ())
    library.torchsrk_run.argtypes = (ctypes.POINTER(_Run), ctypes.c_int)
    library.torchsrk_run.restype = ctypes.c_int
    return CompiledSteps(codes[0], library, traced[0].module, noise, step_size)


def _program(code: StepCode, dim: int, dtype: torch.dtype, noise: Sequence[NoiseInput], one_by_one: bool) -> str:
    real, integer, suffixed = _REALS[dtype]
    definitions = {
        "REAL": real,
        "REAL_BYTES": dtype.itemsize,
        "INTEGER": integer,
        "F(x)": suffixed,
        "KIND": native.KINDS[dtype],
        "DIM": dim,
        "WORKSPACE": code.workspace,
        "NOISES": len(noise),
        "STREAMS": ", ".join(str(int(source.stream)) for source in noise),
        "COMPONENTS": ", ".join(str(source.components) for source in noise),
        **({"ONE_BY_ONE": 1} if one_by_one else {}),
    }
    header = "".join(f"#define {name} {value}\n" for name, value in definitions.items())
    vector, driver = (resources.files(__package__).joinpath(name).read_text() for name in ("vector.h", "driver.c"))
    return f"{header}{vector}\n{code.source}\n{driver}"
