"""Decompositions that stand in for torch's own: its results, on its own device and dtype."""

import pytest
import torch

from torchsrk.compiled.decomposed import OWN
from torchsrk.compiled.fourier import _waves

aten = torch.ops.aten
SHAPES = [(1, 1), (3, 1), (1, 4), (5, 2), (2, 3, 3), (2, 1, 1)]


def numbers(shape, dtype, device):
    """Whole numbers from -3 to 3, or truth values; with float64 one of them NaN."""
    made = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0), dtype=torch.int64).to(dtype)
    if dtype == torch.float64:
        made.view(-1)[-1] = torch.nan
    return made.to(device)


def assert_alike(found, expected):
    """The meta device has shapes and no values; an operation that mixes devices fails there as on any other one."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", SHAPES)
def test_parts_and_triangles(shape, dtype, device):
    x = numbers(shape, dtype, device)
    for diagonal in (-2, -1, 0, 1, 2):
        assert_alike(OWN[aten.tril.default](x, diagonal), torch.tril(x, diagonal))
    for dim in range(-x.ndim, x.ndim):
        part = numbers(shape, dtype, device).select(dim, 0).clone()
        for index in (0, -1):
            expected = torch.select_scatter(x, part, dim, index)
            assert_alike(OWN[aten.select_scatter.default](x, part, dim, index), expected)
            whole = aten.select_backward(part, list(shape), dim, index)
            assert_alike(OWN[aten.select_backward.default](part, list(shape), dim, index), whole)


@pytest.mark.parametrize("end", [0, 5, 2.5])
@pytest.mark.parametrize("form", [{}, {"dtype": torch.float32}, {"device": "meta"}], ids=str)
def test_lines(end, form):
    assert_alike(OWN[aten.arange.default](end, **form), torch.arange(end, **form))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_pools_attention_and_interpolation(device):
    x = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0)).to(device)
    pooled, places = aten.max_pool2d_with_indices.default(x, [2, 2], [2, 2])
    for found, expected in zip(
        OWN[aten.max_pool2d_with_indices.default](x, [2, 2], [2, 2]), (pooled, places), strict=True
    ):
        assert_alike(found, expected)
    to_pool = (pooled, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    pool = aten.max_pool2d_with_indices_backward.default
    assert_alike(OWN[pool](*to_pool), pool(*to_pool))
    line = (x[0], [7], [1, 2, 4], True)
    along = (x.new_ones(1, 2, 7), *line[1:])
    assert_alike(OWN[aten.upsample_linear1d_backward.default](*along), aten.upsample_linear1d_backward.default(*along))
    causal = OWN[aten._scaled_dot_product_flash_attention_for_cpu_backward.default]
    assert {part.device.type for part in causal(x, x, x, x, x, x[..., 0], 0.0, True)} == {device}


@pytest.mark.parametrize("first", [None, 3])
def test_waves_are_where_the_numbers_are(first):
    for device in ("cpu", "meta"):
        parts = _waves(4, 6, 8, first, torch.zeros(2, dtype=torch.float32, device=device), forward=True)
        assert {(part.device.type, part.dtype, part.shape) for part in parts} == {(device, torch.float32, (4, 6))}
