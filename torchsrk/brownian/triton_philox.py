"""The draws of philox.py as Triton functions, for kernels of this library. Importing this imports Triton.

Each operation is rounded once, as in philox.c, so the bits are the same: ``div_rn`` and ``sqrt_rn`` in float32, which
has faster ones that round otherwise; in float64 Triton has neither, and ``/`` and ``sqrt`` are the correctly rounded
ones there, as PTX knows no others. Launch with ``enable_fp_fusion=False``: a multiply-add rounds once for two.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

# What every kernel that draws is launched with.
LAUNCH: dict[str, Any] = {"enable_fp_fusion": False}


@triton.jit
def counter_words(seed, particle, step, stream, block):
    """Four words (uint32) for each particle; particle is an int64 block, step and block too or one number for all."""
    spread = particle * 0  # gives the others its shape
    step = step + spread
    last = (step >> 32) | (stream << 16)
    block = block + spread
    return tl.philox(seed, block.to(tl.uint32), particle.to(tl.uint32), step.to(tl.uint32), last.to(tl.uint32))


@triton.jit
def normals32(seed, particle, step, stream, block, scale):
    """The four float32 normals of a block."""
    first, second, third, fourth = counter_words(seed, particle, step, stream, block)
    a, b = _turn32(second, _radius32(first) * scale)
    c, d = _turn32(fourth, _radius32(third) * scale)
    return a, b, c, d


@triton.jit
def normals64(seed, particle, step, stream, block, scale):
    """The two float64 normals of a block."""
    first, second, third, fourth = counter_words(seed, particle, step, stream, block)
    radius = _radius64((first.to(tl.uint64) << 32) | second.to(tl.uint64))
    return _turn64((third.to(tl.uint64) << 32) | fourth.to(tl.uint64), radius * scale)


@triton.jit
def _radius32(word):
    u = ((word >> 1).to(tl.float32) + 0.5) * 4.656612873077393e-10
    bits = u.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    m = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    s = tl.div_rn(m - 1.0, m + 1.0)
    z = s * s
    artanh = s * (((z * -0.5984878 + -0.799497) * z + -1.3333364) * z + -4.0)
    return tl.sqrt_rn(exponent.to(tl.float32) * -1.3862944 + artanh)


@triton.jit
def _turn32(word, radius):
    t = (word << 2).to(tl.int32, bitcast=True).to(tl.float32) * 2.3283064365386963e-10
    z = t * t
    sine = (((z * -0.004602149 + 0.07968022) * z + -0.6459635) * z + 1.5707964) * t
    cosine = (((z * 0.0009067399 + -0.020861529) * z + 0.2536694) * z + -1.2337005) * z + 1.0
    return _quadrant(word >> 30, radius, cosine, sine)


@triton.jit
def _radius64(word):
    u = 2.0 - ((word >> 12) | 0x3FF0000000000000).to(tl.float64, bitcast=True)
    shifted = u.to(tl.int64, bitcast=True) + 0x00095F619980C433
    m = ((shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).to(tl.float64, bitcast=True)
    exponent = ((shifted >> 52) - 1023).to(tl.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = (z * -0.2961942072131055 + -0.3062505629672838) * z + -0.36367263360458657
    series = ((series * z + -0.44444394113452096) * z + -0.5714285752128336) * z + -0.7999999999860468
    artanh = s * ((series * z + -1.333333333333353) * z + -4.0)
    return tl.sqrt(exponent * -1.3862943611198906 + artanh)


@triton.jit
def _turn64(word, radius):
    t = (((word << 2) >> 12) | 0x3FF0000000000000).to(tl.float64, bitcast=True) - 1.5
    z = t * t
    sine = (z * 5.633933781537854e-08 + -3.59864335298231e-06) * z + 0.0001604411507421909
    sine = ((sine * z + -0.004681754132340976) * z + 0.07969262624604301) * z + -0.6459640975062443
    sine = t * (sine * z + 1.5707963267948966)
    cosine = (z * -6.329396344967424e-09 + 4.710678405505227e-07) * z + -2.5202039028029178e-05
    cosine = ((cosine * z + 0.0009192602745468447) * z + -0.020863480763340773) * z + 0.2536695079010478
    cosine = (cosine * z + -1.2337005501361697) * z + 1.0
    return _quadrant(word >> 62, radius, cosine, sine)


@triton.jit
def _quadrant(quadrant, radius, cosine, sine):
    odd = (quadrant & 1) == 1
    first, second = tl.where(odd, sine, cosine), tl.where(odd, cosine, sine)
    # Times -1 and not a minus sign, by which Triton means 0 - x: that has another sign where x is 0.
    first = tl.where(((quadrant + 1) & 2) == 2, first * -1.0, first)
    second = tl.where((quadrant & 2) == 2, second * -1.0, second)
    return radius * first, radius * second


@triton.jit(do_not_specialize=["seed", "stream", "first_particle", "first_block", "scale_bits", "rows", "particles"])
def fill_rows(
    out,
    first_step,
    seed,
    stream,
    first_particle,
    first_block,
    scale_bits,
    rows,
    particles,
    components,
    BLOCKS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Fill ``out``, rows (steps, particles) of so many components, each of them BLOCKS blocks of normals.

    ``first_step`` is an int64 in the device's memory, ``scale_bits`` a float64 by its bits: Triton's own numbers have
    the precision of float32.
    """
    number = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    row, block = number // BLOCKS, number % BLOCKS
    inside = row < rows
    step = tl.load(first_step).to(tl.int64) + row // particles
    particle = first_particle + row % particles
    scale = tl.cast(scale_bits, tl.int64).to(tl.float64, bitcast=True).to(out.dtype.element_ty)
    place = row * components
    if out.dtype.element_ty == tl.float32:
        a, b, c, d = normals32(seed, particle, step, stream, first_block + block, scale)
        entry = 4 * block
        tl.store(out + place + entry, a, mask=inside & (entry < components))
        tl.store(out + place + entry + 1, b, mask=inside & (entry + 1 < components))
        tl.store(out + place + entry + 2, c, mask=inside & (entry + 2 < components))
        tl.store(out + place + entry + 3, d, mask=inside & (entry + 3 < components))
    else:
        e, f = normals64(seed, particle, step, stream, first_block + block, scale)
        pair = 2 * block
        tl.store(out + place + pair, e, mask=inside & (pair < components))
        tl.store(out + place + pair + 1, f, mask=inside & (pair + 1 < components))
