"""The noise generator in tensor operations: the definition of every draw, on any device.

Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11) turns a 128-bit
counter and a 64-bit key into four 32-bit words; Box-Muller turns words into normals. The key is the seed. The counter
holds, word by word: the component block, the particle, the low half of the step, and the high 16 bits of the step with
the stream above them. A block is four float32 normals or two float64 normals.

``philox.c`` does the same operations in the same order, each rounded once as IEEE 754 says, so the two give the same
bits; its comments explain the polynomials.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Ten rounds of Philox4x32 on int64 tensors that hold 32-bit words."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        # The 64-bit products wrap around int64; masking after the shift recovers the unsigned halves.
        p0, p1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = ((p1 >> 32) & WORD) ^ x1 ^ k0, p1 & WORD, ((p0 >> 32) & WORD) ^ x3 ^ k1, p0 & WORD
        k0, k1 = (k0 + _WEYL[0]) & WORD, (k1 + _WEYL[1]) & WORD
    return x0, x1, x2, x3


def words(*, seed: int, particle: Tensor, step: Tensor, stream: int, block: Tensor) -> Tensor:
    """Four words for each counter: broadcast the int64 index tensors, then add a last dimension of 4."""
    block, particle, step = torch.broadcast_tensors(block, particle, step)
    counter = (block, particle, step & WORD, (step >> 32) | (stream << 16))
    return torch.stack(philox4x32(counter, (seed & WORD, seed >> 32)), dim=-1)


def normals_per_block(dtype: torch.dtype) -> int:
    """How many normals of a dtype the four words of a block give."""
    return 4 if dtype == torch.float32 else 2


def normals(block_words: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """Box-Muller: words (..., 4) to normals (..., 4) in float32 or (..., 2) in float64, times ``scale``."""
    first, second, third, fourth = block_words.unbind(-1)
    if dtype == torch.float32:
        cos_a, sin_a = _turn32(second, _radius32(first) * scale)
        cos_b, sin_b = _turn32(fourth, _radius32(third) * scale)
        return torch.stack((cos_a, sin_a, cos_b, sin_b), dim=-1)
    return torch.stack(_turn64(third << 32 | fourth, _radius64(first << 32 | second) * scale), dim=-1)


# Draws at the edges of the counter's words, which tell whether a kernel gives the numbers that it should.
EXAMPLE: dict[str, Any] = {
    "seed": 12345,
    "first_particle": 2**31 + 5,
    "first_step": 2**32 - 2,
    "stream": 3,
    "scale": 0.75,
}


def example(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The draws of EXAMPLE, (steps, particles, components)."""
    steps, particles, components = 3, 19, 7
    drawn = words(
        seed=EXAMPLE["seed"],
        particle=torch.arange(particles, device=device).view(-1, 1) + EXAMPLE["first_particle"],
        step=torch.arange(steps, device=device).view(-1, 1, 1) + EXAMPLE["first_step"],
        stream=EXAMPLE["stream"],
        block=torch.arange(-(-components // normals_per_block(dtype)), device=device),
    )
    return normals(drawn, dtype, EXAMPLE["scale"]).flatten(-2)[..., :components].contiguous()


def _horner(x: Tensor, *coefficients: float) -> Tensor:
    value = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def _sqrt(x: Tensor) -> Tensor:
    """The float nearest to √x. torch's own may be a unit off on the CPU, where it calls a vector library."""
    root = x.sqrt()
    # The exact square of the root, in two floats (Dekker, 1971), then one Newton correction from the exact remainder.
    shifted = root * (4097.0 if x.dtype == torch.float32 else 134217729.0)
    high = shifted - (shifted - root)
    low = root - high
    square = root * root
    excess = ((high * high - square) + 2.0 * high * low) + low * low
    corrected = root + ((x - square) - excess) / (2.0 * root)
    return torch.where(root > 0, corrected, root)


def _radius32(word: Tensor) -> Tensor:
    u = ((word >> 1).to(torch.float32) + 0.5) * 2.0**-31
    bits = u.view(torch.int32)
    exponent = (bits - 0x3F3504F3) >> 23
    m = (bits - (exponent << 23)).view(torch.float32)
    s = (m - 1.0) / (m + 1.0)
    artanh = s * _horner(s * s, -0.5984878, -0.799497, -1.3333364, -4.0)
    return _sqrt(exponent.to(torch.float32) * -1.3862944 + artanh)


def _turn32(word: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    fraction = (word << 2) & WORD
    t = (fraction - ((fraction >> 31) << 32)).to(torch.float32) * 2.0**-32
    z = t * t
    sine = _horner(z, -0.004602149, 0.07968022, -0.6459635, 1.5707964) * t
    cosine = _horner(z, 0.0009067399, -0.020861529, 0.2536694, -1.2337005, 1.0)
    return _quadrant(word >> 30, radius, cosine, sine)


def _radius64(word: Tensor) -> Tensor:
    one, root_half, mantissa = 0x3FF0000000000000, 0x3FE6A09E667F3BCD, 0x000FFFFFFFFFFFFF
    u = 2.0 - (((word >> 12) & mantissa) | one).view(torch.float64)
    shifted = u.view(torch.int64) + (one - root_half)
    m = ((shifted & mantissa) + root_half).view(torch.float64)
    exponent = ((shifted >> 52) - 1023).to(torch.float64)
    s = (m - 1.0) / (m + 1.0)
    artanh = s * _horner(
        s * s,
        -0.2961942072131055,
        -0.3062505629672838,
        -0.36367263360458657,
        -0.44444394113452096,
        -0.5714285752128336,
        -0.7999999999860468,
        -1.333333333333353,
        -4.0,
    )
    return _sqrt(exponent * -1.3862943611198906 + artanh)


def _turn64(word: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    bits = (((word << 2) >> 12) & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
    t = bits.view(torch.float64) - 1.5
    z = t * t
    sine = t * _horner(
        z,
        5.633933781537854e-08,
        -3.59864335298231e-06,
        0.0001604411507421909,
        -0.004681754132340976,
        0.07969262624604301,
        -0.6459640975062443,
        1.5707963267948966,
    )
    cosine = _horner(
        z,
        -6.329396344967424e-09,
        4.710678405505227e-07,
        -2.5202039028029178e-05,
        0.0009192602745468447,
        -0.020863480763340773,
        0.2536695079010478,
        -1.2337005501361697,
        1.0,
    )
    return _quadrant((word >> 62) & 3, radius, cosine, sine)


def _quadrant(quadrant: Tensor, radius: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    odd = (quadrant & 1) == 1
    first, second = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    first = torch.where(((quadrant + 1) & 2) == 2, -first, first)
    second = torch.where((quadrant & 2) == 2, -second, second)
    return radius * first, radius * second
