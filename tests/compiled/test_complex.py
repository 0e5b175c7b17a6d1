"""Complex numbers and Fourier transforms in compiled steps: the numbers of eager ones."""

import math
import warnings

import pytest
import torch

from tests.compiled.test_same_numbers import added_up, some_at_a_time
from torchsrk import Langevin, sample
from torchsrk.compiled import fourier
from torchsrk.potentials import FunctionPotential

OPTIONS = {"step_size": 1e-3, "num_steps": 4, "seed": 0}
FILTER = torch.linspace(0.5, 2.0, 5, dtype=torch.float64)
RESPONSE = torch.complex(FILTER, FILTER.flip(0).sin())
KERNEL = torch.arange(8.0, dtype=torch.float64).cos()
fft = torch.fft


def derivative(x):
    frequencies = fft.fftfreq(8, d=1.0 / 8, dtype=x.dtype)
    return fft.ifft(2j * math.pi * frequencies * fft.fft(x)).real.square().sum(-1)


def autocorrelation(x):
    spectrum = fft.rfft(x, n=16)
    return fft.irfft(spectrum * spectrum.conj(), n=16)[..., :4].square().sum(-1)


def of_image(x):
    return x.reshape(*x.shape[:-1], 2, 4)


ENERGIES = {
    "power": lambda x: (fft.rfft(x).real ** 2 + fft.rfft(x).imag ** 2).sum(-1),
    "size": lambda x: fft.fft(x, norm="ortho").abs().sum(-1),
    "filter": lambda x: fft.irfft(fft.rfft(x) * FILTER.to(x.dtype), n=8).square().sum(-1),
    "complex filter": lambda x: fft.irfft(fft.rfft(x) * RESPONSE.to(x.dtype.to_complex())).square().sum(-1),
    "convolution": lambda x: (fft.irfft(fft.rfft(x) * fft.rfft(KERNEL.to(x.dtype)), n=8) - 1).square().sum(-1),
    "odd sizes": lambda x: fft.irfft(fft.rfft(x[..., :7]), n=7).square().sum(-1) + fft.fft(x[..., :5]).abs().sum(-1),
    "cut and filled": lambda x: fft.irfft(fft.rfft(x, n=12), n=9).square().sum(-1),
    "derivative": derivative,
    "autocorrelation": autocorrelation,
    "image": lambda x: fft.fft2(of_image(x)).abs().square().sum((-1, -2)),
    "real image": lambda x: fft.irfft2(fft.rfft2(of_image(x)) ** 2, s=(2, 4)).square().sum((-1, -2)),
    "another dimension": lambda x: fft.rfft(of_image(x), dim=-2).abs().sum((-1, -2)),
    "parts": lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))[..., 1:]).sum((-1, -2)),
    "angle": lambda x: fft.rfft(x).angle().cos().sum(-1),
    "waves": lambda x: (torch.exp(1j * x).sum(-1) + torch.polar(x[..., 0].exp(), x[..., 1])).abs(),
    "quotient": lambda x: (1.0 / (1.0 + 0.1j * fft.rfft(x)) - 0.5).abs().sum(-1),
    "product": lambda x: (fft.rfft(x) @ RESPONSE.to(x.dtype.to_complex())).abs(),
    "hermitian": lambda x: fft.hfft(torch.complex(x[..., :4], x[..., 4:]), n=6).square().sum(-1),
    "some terms": lambda x: fft.fft(x)[..., 1:4].abs().sum(-1) + fft.fft(x)[..., 0].real ** 2,
}


def both_ways(energy, x0):
    sde = Langevin(FunctionPotential(energy))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return [sample(sde, x0, integrator="em", compile=compile, **OPTIONS).final for compile in (False, True)]


@some_at_a_time(ENERGIES, 5)
def test_same_numbers(names):
    dtype = (torch.float32, torch.float64)[list(ENERGIES).index(names[0]) % 2]
    x0 = 0.1 + torch.rand(9, 8, dtype=dtype, generator=torch.Generator().manual_seed(1))
    eager, compiled = both_ways(added_up(ENERGIES, names), x0)
    assert not torch.equal(eager, x0)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(compiled, eager, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 16, 17, 24, 30, 64, 96, 100])
def test_transforms_of_any_size(size, forward):
    z = torch.randn(3, size, dtype=torch.complex128, generator=torch.Generator().manual_seed(size))
    whole = fft.fft(z) if forward else fft.ifft(z, norm="forward")
    made = fourier.from_complex(fourier.Pair(z.real, z.imag), [-1], 0, forward)
    torch.testing.assert_close(torch.complex(made.real, made.imaginary), whole, rtol=1e-12, atol=1e-11)
    half = fourier.from_real(z.real, [-1], 1, onesided=True)
    torch.testing.assert_close(torch.complex(half.real, half.imaginary), fft.rfft(z.real, norm="ortho"))
    terms = z[..., : size // 2 + 1]
    again = fourier.to_real(fourier.Pair(terms.real, terms.imag), [-1], 2, size)
    torch.testing.assert_close(again, fft.irfft(terms, n=size))


def test_a_long_transform():
    x0 = torch.rand(3, 48, generator=torch.Generator().manual_seed(1))  # halved three times
    eager, compiled = both_ways(lambda x: fft.rfft(x).abs().square().sum(-1) / 48, x0)
    torch.testing.assert_close(compiled, eager, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("energy", "reason"),
    [
        (lambda x: fft.fft(x).sqrt().abs().sum(-1), "aten.sqrt.default of complex numbers, which has no C form"),
        (lambda x: fft.fft(x, n=134).abs().sum(-1), "a Fourier transform of 134 numbers, which is faster eagerly"),
        (lambda x: fft.fft(x, dim=0).abs().sum(-1), "a step mixes its particles: a Fourier transform"),
    ],
)
def test_says_why_not(energy, reason):
    sde, x0 = Langevin(FunctionPotential(energy)), torch.rand(6, 8, generator=torch.Generator().manual_seed(1))
    with pytest.warns(RuntimeWarning, match=f"this run is eager, as .*{reason}"):
        compiled = sample(sde, x0, integrator="em", compile=True, **OPTIONS).final
    assert torch.equal(compiled, sample(sde, x0, integrator="em", **OPTIONS).final)
