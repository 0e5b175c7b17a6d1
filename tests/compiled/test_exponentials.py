"""The vector functions of exponential.h, in units in the last place, over all that their dtype holds."""

import ctypes
from importlib import resources

import numpy as np
import pytest

from tests.compiled.test_vectors import WIDTHS
from torchsrk.compiled import build, steps

REALS = {np.float32: ("float", "int32_t", "x##f"), np.float64: ("double", "int64_t", "x")}
LANES = 16  # the most that a vector has
FLAGS = {**{width: WIDTHS[width] for width in ("widest", "AVX2", "SSE")}, "one by one": ("-DONE_BY_ONE",)}
MOST_UNITS = 2.5
_LOOP = """
void apply(const REAL *x, REAL *y, int64_t size)
{
    for (int64_t i = 0; i < size; i += TILE) {
        V vector;
        memcpy(&vector, x + i, sizeof vector);
        vector = v_NAME(vector);
        memcpy(y + i, &vector, sizeof vector);
    }
}
"""


def by_vectors(name, x, flags):
    """The function of every number, by a loop over vectors."""
    real, integer, suffixed = REALS[x.dtype.type]
    names = {"REAL": real, "REAL_BYTES": x.itemsize, "INTEGER": integer, "F(x)": suffixed}
    files = resources.files(steps.__package__)
    texts = [files.joinpath(part).read_text() for part in ("vector.h", "exponential.h", "functions.h")]
    definitions = "".join(f"#define {key} {value}\n" for key, value in names.items())
    library = build.load("\n".join((definitions, *texts, _LOOP.replace("NAME", name))), flags)
    y = np.empty_like(x)
    library.apply(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size))
    return y


def exact(name, x):
    """In a wider type: doubles for single precision, and 64 bits of mantissa for double."""
    wide = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
    with np.errstate(over="ignore", under="ignore"):
        sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
        return {"exp": np.exp, "expm1": np.expm1, "tanh": np.tanh, "sigmoid": sigmoid}[name](wide)


def points(dtype):
    """Every exponent, densely where the functions bend, and around where results leave what the dtype holds."""
    limit = np.log(np.finfo(dtype).max)
    sizes = np.geomspace(np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max / 2, 20_000, dtype=np.longdouble)
    near = np.linspace(0, 25, 200_001)
    far = np.linspace(0, 1.3 * float(limit), 100_001)
    all_sizes = np.concatenate([sizes.astype(dtype), near.astype(dtype), far.astype(dtype)])
    x = np.concatenate([all_sizes, -all_sizes])
    return x[: x.size // LANES * LANES]


def units_off(result, right):
    """How far off, in units in the last place of the right result; of numbers below the least normal, of that one."""
    info = np.finfo(result.dtype)
    unit = info.eps * 2.0 ** np.floor(np.log2(np.maximum(np.abs(right), info.smallest_normal)))
    return np.abs(result - right) / unit


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs a wider type than double")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", FLAGS)
@pytest.mark.parametrize("name", ["exp", "expm1", "tanh", "sigmoid"])
def test_units_in_the_last_place(name, width, dtype):
    x = points(dtype)
    result, right = by_vectors(name, x, FLAGS[width]), exact(name, x)
    held = np.abs(right) <= np.finfo(dtype).max
    assert np.isposinf(result[~held]).all()
    # What 1/(1 + e^-x) is where e^-x is too large lies below all normal numbers: torch has 0 there, too.
    off = units_off(result[held], right[held])
    tiny = (right[held] < np.finfo(dtype).smallest_normal) & (result[held] == 0) & (name == "sigmoid")
    worst = np.where(tiny, 0.0, off)
    assert worst.max() <= MOST_UNITS, (float(worst.max()), x[held][worst.argmax()])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", FLAGS)
def test_ends(width, dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1.0] * 2, dtype)
    expected = {
        "exp": [1, 1, np.inf, 0, np.nan, np.inf, 0],
        "expm1": [0, 0, np.inf, -1, np.nan, np.inf, -1],
        "tanh": [0, -0.0, 1, -1, np.nan, 1, -1],
        "sigmoid": [0.5, 0.5, 1, 0, np.nan, 1, 0],
    }
    for name, values in expected.items():
        result = by_vectors(name, x, FLAGS[width])[:7]
        np.testing.assert_array_equal(result, np.array(values, dtype))
        if name == "tanh":
            assert np.array_equal(np.signbit(result[:2]), [False, True])
