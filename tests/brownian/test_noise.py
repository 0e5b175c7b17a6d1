"""What a draw depends on, and what it does not; and that draws are normal and independent.

The statistical tests use fixed seeds at significance 1e-4 each: a correct generator fails one of them with a
probability of about 1 in 1000 when the seeds are first chosen, and never again.
"""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from torchsrk.brownian import Stream, fill_normal, native, philox
from torchsrk.brownian.noise import derive_seed, draw_uniform, fill_normal_reference

LEVEL = 1e-4
DTYPES = [torch.float32, torch.float64]


def draw(particles, components, dtype=torch.float64, **where):
    where = {"seed": 11, "stream": Stream.INCREMENT} | where
    return fill_normal(torch.empty(particles, components, dtype=dtype), **where)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("components", [1, 3, 4, 20, 37])
def test_a_particle_has_the_same_bits_in_any_batch(dtype, components):
    whole = draw(503, components, dtype)
    cuts = [0, 1, 2, 67, 131, 400, 503]
    pieces = [draw(b - a, components, dtype, first_particle=a) for a, b in pairwise(cuts)]
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(draw(1, components, dtype, first_particle=402)[0], whole[402])


@pytest.mark.parametrize("dtype", DTYPES)
def test_components_do_not_depend_on_how_many_are_asked_for(dtype):
    wide = draw(50, 40, dtype)
    assert torch.equal(draw(50, 7, dtype), wide[:, :7])
    assert torch.equal(draw(50, 9, dtype, first_component=12), wide[:, 12:21])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("components", [20, 3])
def test_any_number_of_threads_gives_the_same_bits(dtype, components):
    one = draw(1013, components, dtype, threads=1)
    for threads in (2, 3, 7, 64, 1000):
        assert torch.equal(draw(1013, components, dtype, threads=threads), one)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_of_many_steps_is_those_steps_one_by_one(dtype):
    first = 2**32 - 3  # crosses the step's word boundary
    together = fill_normal(torch.empty(6, 11, 5, dtype=dtype), seed=11, stream=0, step=first)
    for k in range(6):
        assert torch.equal(draw(11, 5, dtype, step=first + k), together[k])


def test_nothing_asked_for_is_nothing_drawn():
    for shape in ((0, 3), (3, 0), (0, 2, 2)):
        assert fill_normal(torch.empty(shape), seed=0, stream=0).numel() == 0
    assert draw_uniform((0, 1), seed=0, stream=0, device=torch.device("cpu")).shape == (0, 1)


def test_every_coordinate_of_the_counter_matters():
    base = {"seed": 1, "stream": 0, "step": 5, "first_particle": 9}
    changes = (
        {},
        {"seed": 2},
        {"seed": 1 + 2**40},
        {"stream": 1},
        {"step": 6},
        {"step": 5 + 2**33},
        {"first_particle": 10},
    )
    values = torch.cat([draw(1, 8, **(base | change)) for change in changes])
    assert len(values.flatten().unique()) == values.numel()


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 2**34), (torch.float64, 2**33)])
def test_components_end_where_the_counter_does(dtype, most):
    """One more block would be the first one again."""
    last = draw(3, 4, dtype, first_component=most - 4)
    assert not torch.equal(last, draw(3, 4, dtype))
    defined = torch.empty(1, 3, 4, dtype=dtype)
    block = (most - 4) // philox.normals_per_block(dtype)
    fill_normal_reference(defined, 11, Stream.INCREMENT, 0, 0, block, 1.0)
    assert torch.equal(last, defined[0])
    for first, components in ((most - 4, 5), (most, 1), (2**40, 1)):
        with pytest.raises(ValueError, match=f"components are numbered.*got {first} and {components} more"):
            draw(3, components, dtype, first_component=first)
    with pytest.raises(ValueError, match=r"at most 2\*\*31 blocks"):
        fill_normal(torch.empty(1, most // 2 + 1, dtype=dtype, device="meta"), seed=0, stream=0)


def test_uniforms_and_streams_end_where_the_counter_does():
    cpu = torch.device("cpu")
    assert draw_uniform((1, 1), seed=0, stream=2**16 - 1, step=2**48 - 1, device=cpu).shape == (1, 1)
    for shape, where, message in (
        ((1, 1), {"step": 2**48}, "steps are numbered"),
        ((1, 1), {"step": -1}, "steps are numbered"),
        ((2**33, 1), {}, "particles are numbered"),
        ((1, 2**34 + 1), {}, "components are numbered"),
        ((1, 1), {"stream": 2**16}, r"streams are numbered from 0 to 2\*\*16 - 1; got 65536"),
    ):
        with pytest.raises(ValueError, match=message):
            draw_uniform(shape, **({"seed": 0, "stream": 0, "device": cpu} | where))
    with pytest.raises(ValueError, match="streams are numbered"):
        draw(1, 1, stream=-1)


def test_derived_seeds_do_not_repeat():
    indices = (0, 1, 2**16, 2**32, 2**32 + 1, 2**48 - 1)
    assert len({derive_seed(5, index) for index in indices}) == len(indices)
    for index in (2**48, -1, True, 1.0):
        with pytest.raises(ValueError, match=r"index 0 to 2\*\*48 - 1; got index"):
            derive_seed(5, index)


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**64 - 1),
    step=st.integers(0, 2**48 - 4),
    stream=st.integers(0, 2**16 - 1),
    first_particle=st.integers(0, 2**32 - 200),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 130), st.integers(1, 40)),
    first_block_of_four=st.integers(0, 2**20),
    threads=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_kernel_and_definition_agree_anywhere(
    dtype, seed, step, stream, first_particle, shape, first_block_of_four, threads
):
    drawn, defined = torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype)
    where = {"seed": seed, "stream": stream, "step": step, "first_particle": first_particle}
    fill_normal(drawn, first_component=4 * first_block_of_four, threads=threads, **where)
    block = 4 * first_block_of_four // philox.normals_per_block(dtype)
    fill_normal_reference(defined, seed, stream, step, first_particle, block, 1.0)
    assert torch.equal(drawn, defined)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_draws_the_same_bits(dtype):
    there = fill_normal(torch.empty(500, 7, dtype=dtype, device="cuda"), seed=11, stream=0)
    assert torch.equal(there.cpu(), draw(500, 7, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_are_standard_normal(dtype):
    values = draw(50_000, 20, dtype).double().flatten()
    assert stats.kstest(values.numpy(), "norm").pvalue > LEVEL
    # Standardised moments 1 to 6, and the mass beyond 4: each asymptotically normal with known variance.
    n, double_factorial = len(values), [1, 1, 3, 15, 105, 945, 10395]
    for power in range(1, 7):
        mean = double_factorial[power // 2] if power % 2 == 0 else 0
        spread = math.sqrt((double_factorial[power] - mean**2) / n)
        z = (values.pow(power).mean().item() - mean) / spread
        assert abs(z) < stats.norm.isf(LEVEL / 2), (power, z)
    tail = stats.binomtest(int((values.abs() > 4).sum()), n, 2 * stats.norm.sf(4))
    assert tail.pvalue > LEVEL


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [1, 2])
def test_draws_are_independent_across_everything(dtype, power):
    """Correlations of neighbours, of values and of squares: components, particles, steps and streams."""
    n = 20_000
    base = draw(n, 8, dtype, step=3)
    partners = {
        "the other of a Box-Muller pair": (base[:, 0], base[:, 1]),
        "the next pair of the block": (base[:, 0], base[:, 2]),
        "the next block": (base[:, 0], base[:, 4]),
        "the next particle": (base[:-1, 0], base[1:, 0]),
        "the next step": (base[:, 0], draw(n, 8, dtype, step=4)[:, 0]),
        "the next stream": (base[:, 0], draw(n, 8, dtype, step=3, stream=1)[:, 0]),
        "the next seed": (base[:, 0], draw(n, 8, dtype, step=3, seed=12)[:, 0]),
    }
    for name, pair in partners.items():
        first, second = (values.double().pow(power) for values in pair)
        assert stats.pearsonr(first.numpy(), second.numpy()).pvalue > LEVEL, name


def test_uniform_draws():
    values = draw_uniform((20_000, 5), seed=3, stream=Stream.EXACT_DRAW, device=torch.device("cpu"))
    assert values.min() > 0.0
    assert values.max() < 1.0
    assert stats.kstest(values.flatten().numpy(), "uniform").pvalue > LEVEL


@given(
    particles=st.integers(1, 16),
    steps=st.integers(1, 9),
    components=st.integers(1, 40),
    spare=st.integers(0, 3),
    members=st.integers(1, 3),
    first_particle=st.integers(0, 2**32 - 49),
    step=st.integers(0, 2**48 - 10),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_tile_holds_the_same_draws_particles_innermost(
    particles, steps, components, spare, members, first_particle, step, dtype
):
    """Also of several particles side by side in one, each of them filled on its own."""
    kernel = native.library()
    if kernel is None:
        pytest.skip("no noise kernel")
    row = particles + spare
    tile = torch.full((steps, members, components, row), -99.0, dtype=dtype)
    for member in range(members):
        # kind, seed, first particle, first step, stream
        where = (native.KINDS[dtype], 11, first_particle + member, step, 1)
        sizes = (steps, particles, components, row, 0.5, members, members * components)
        kernel.torchsrk_fill_tile(tile[0, member].data_ptr(), *where, *sizes)
    rows = torch.empty(steps, particles * members, components, dtype=dtype)
    fill_normal(rows, seed=11, stream=1, step=step, first_particle=first_particle, scale=0.5)
    assert torch.equal(tile[..., :particles], rows.view(steps, particles, members, components).permute(0, 2, 3, 1))
    assert (tile[..., particles:] == -99.0).all()
