"""Fourier transforms by operations that have a C form: halvings, and products with matrices for what is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_BY_MATRIX = 8  # numbers, of which a transform is a product with a matrix
_LARGEST_ODD = 64  # factor of a size: a matrix as well, and not worth it beyond
_LONGEST = 4096


@dataclass(frozen=True)
class Pair:
    """A complex tensor by its parts."""

    real: Tensor
    imaginary: Tensor

    def each(self, function: Callable[[Tensor], Any]) -> Pair:
        return Pair(function(self.real), function(self.imaginary))

    @property
    def conjugate(self) -> Pair:
        return Pair(self.real, -self.imaginary)


def from_complex(a: Pair, dims: Sequence[int], normalization: int, forward: bool) -> Pair:
    """torch's ``_fft_c2c``."""
    scale = _scale(normalization, [a.real.shape[d] for d in dims])
    return _transformed(a, dims, forward).each(lambda part: part * scale)


def from_real(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """torch's ``_fft_r2c``."""
    *others, last = dims
    kept, scale = x.shape[last] // 2 + 1, _scale(normalization, [x.shape[d] for d in dims])
    spectrum = _of_last(x.movedim(last, -1), None, forward=True)
    spectrum = spectrum.each(lambda part: (part[..., :kept] if onesided else part).movedim(-1, last))
    return _transformed(spectrum, others, forward=True).each(lambda part: part * scale)


def to_real(a: Pair, dims: Sequence[int], normalization: int, size: int) -> Tensor:
    """torch's ``_fft_c2r``: the other half of the spectrum is the conjugate of what is given."""
    *others, last = dims
    half = _transformed(a, others, forward=False).each(lambda part: part.movedim(last, -1)[..., : size // 2 + 1])
    mirrored = half.each(lambda part: part[..., 1 : (size + 1) // 2].flip(-1))
    inner = half.imaginary[..., 1 : (size + 1) // 2]
    alone = torch.zeros_like(half.real[..., :1])  # of 0, and of the middle, the imaginary parts don't count
    middle = [] if size % 2 else [alone]
    real = torch.cat((half.real, mirrored.real), -1)
    imaginary = torch.cat((alone, inner, *middle, -mirrored.imaginary), -1)
    whole = _of_last(real, imaginary, forward=False).real.movedim(-1, last)
    return whole * _scale(normalization, [size, *(a.real.shape[d] for d in others)])


def _scale(normalization: int, sizes: Sequence[int]) -> float:
    """As torch numbers them: none, by the root of all sizes, by all sizes."""
    return {0: 1.0, 1: 1.0 / math.sqrt(math.prod(sizes)), 2: 1.0 / math.prod(sizes)}[normalization]


def _transformed(a: Pair, dims: Sequence[int], forward: bool) -> Pair:
    for dim in dims:
        made = _of_last(a.real.movedim(dim, -1), a.imaginary.movedim(dim, -1), forward)
        a = Pair(made.real.movedim(-1, dim), made.imaginary.movedim(-1, dim))
    return a


def _of_last(real: Tensor, imaginary: Tensor | None, forward: bool) -> Pair:
    """The transform along the last dimension; an imaginary part of None is 0.

    After Stockham: numbers are (length, done), of which transforms along the first dimension are left to do. One of
    twice the length is one of the sums and one of the differences of its halves, these times a wave.
    """
    *shape, size = real.shape
    length, done = size, 1
    _check(size)
    real = real.reshape(*shape, size, 1)
    imaginary = None if imaginary is None else imaginary.reshape(*shape, size, 1)
    while length % 2 == 0 and length > _BY_MATRIX:
        cos, sin = _waves(length // 2, 1, length, 1, real, forward)
        real_sum, real_apart = _halves(real, length)
        if imaginary is None:
            parts = [(real_sum, real_apart * cos), (torch.zeros_like(real_sum), real_apart * sin)]
        else:
            sum_, apart = _halves(imaginary, length)
            parts = [(real_sum, real_apart * cos - apart * sin), (sum_, real_apart * sin + apart * cos)]
        length, done = length // 2, 2 * done
        real, imaginary = (torch.stack(two, -2).reshape(*shape, length, done) for two in parts)
    return Pair(*(part.reshape(*shape, size) for part in _by_matrix(real, imaginary, length, forward)))


def _halves(x: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The sum and the difference of the halves of the last dimension but one."""
    first, second = x.split(length // 2, -2)
    return first + second, first - second


def _by_matrix(real: Tensor, imaginary: Tensor | None, length: int, forward: bool) -> tuple[Tensor, Tensor]:
    """A transform along the last dimension but one."""
    if length == 1:
        return real, torch.zeros_like(real) if imaginary is None else imaginary
    cos, sin = _waves(length, length, length, None, real, forward)
    if imaginary is None:
        return cos @ real, sin @ real
    return cos @ real - sin @ imaginary, sin @ real + cos @ imaginary


def _waves(
    rows: int, columns: int, period: int, first: int | None, like: Tensor, forward: bool
) -> tuple[Tensor, Tensor]:
    """cos and sin of ±2π jk/period, (rows, columns); k counts from ``first``, by default 0."""
    along = torch.arange(first or 0, columns + (first or 0), device=like.device)
    down = torch.arange(rows, device=like.device).unsqueeze(-1)
    angles = (down * along % period).to(torch.float64) * (2.0 * math.pi / period)
    sin = angles.sin()
    return angles.cos().to(like.dtype), (-sin if forward else sin).to(like.dtype)


def _check(size: int) -> None:
    odd = size
    while odd % 2 == 0 and odd > _BY_MATRIX:
        odd //= 2
    if size > _LONGEST or odd > _LARGEST_ODD:
        raise NotImplementedError(
            f"a step makes a Fourier transform of {size} numbers, which is faster eagerly: compiled are sizes up to "
            f"{_LONGEST}, of an odd factor up to {_LARGEST_ODD}"
        )
