"""Distances against closed forms and literal loops. Fixed seeds; significance as stated."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from tests.memory import run_numbers
from tests.problems import mixture
from torchsrk import Langevin, metrics, sample
from torchsrk.metrics import (
    corrected_wasserstein2_squared,
    energy_distance_squared,
    gaussian_wasserstein2_squared,
    kernel_stein_discrepancy,
    maximum_mean_discrepancy_squared,
    sliced_wasserstein2_squared,
    wasserstein2_squared,
)
from torchsrk.metrics.stein import SteinKernel

DISTANCES = {
    "exact": lambda x, y: wasserstein2_squared(x, y, "exact"),
    "sinkhorn": lambda x, y: wasserstein2_squared(x, y, "sinkhorn"),
    "energy": energy_distance_squared,
    "sliced": lambda x, y: sliced_wasserstein2_squared(x, y, seed=0),
    "mmd": lambda x, y: maximum_mean_discrepancy_squared(x, y, bandwidth=1.0),
}


def clouds(n=200, m=150, dim=3, dtype=torch.float64, offset=0.0):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, dim, generator=generator)
    y = 1.2 * torch.randn(m, dim, generator=generator) + 0.3
    return (x + offset).to(dtype), (y + offset).to(dtype)


def test_every_exported_metric_is_tested_here():
    source = Path(__file__).read_text(encoding="utf-8")
    assert all(source.count(name) >= 2 for name in metrics.__all__ if name != "Estimate")


# ------------------------------------------------------------------------------------------ what all distances share


@pytest.mark.parametrize("name", DISTANCES)
def test_distance_contract(name):
    """Symmetric, zero on equal clouds, positive otherwise, of the input's dtype, and at home at any offset."""
    distance = DISTANCES[name]
    x, y = clouds()
    value = distance(x, y)
    assert value.shape == ()
    assert value.dtype == torch.float64
    assert value > 0.01
    # Sinkhorn's default blur looks from the first cloud to the second, so it is symmetric up to its own bias.
    torch.testing.assert_close(distance(y, x), value, rtol=0.02 if name == "sinkhorn" else 1e-9, atol=1e-12)
    assert abs(distance(x, x.clone())) < 1e-6
    x32, y32 = clouds(dtype=torch.float32)
    assert distance(x32, y32).dtype == torch.float32
    torch.testing.assert_close(distance(x32, y32).double(), value, rtol=2e-4, atol=0.0)
    # Shifted by 1e4, float32 points keep 1e-3 of resolution: the same clouds rounded to it give the same distance.
    far_x, far_y = clouds(dtype=torch.float32, offset=1e4)
    near = distance((far_x.double() - 1e4).float(), (far_y.double() - 1e4).float())
    torch.testing.assert_close(distance(far_x, far_y), near, rtol=1e-3, atol=0.0)
    torch.testing.assert_close(distance(far_x, far_y).double(), value, rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("name", ["exact", "energy", "sliced", "mmd"])
def test_gradients(name):
    x, y = clouds(8, 8)  # equal sizes: an exact plan that is unique, so that it does not jump
    assert torch.autograd.gradcheck(DISTANCES[name], (x.requires_grad_(), y.requires_grad_()))


def test_sinkhorn_gradient_points_the_right_way():
    x, y = clouds(40, 40)
    x.requires_grad_()
    (near,) = torch.autograd.grad(DISTANCES["sinkhorn"](x, y), x)
    (exact,) = torch.autograd.grad(DISTANCES["exact"](x, y), x)
    assert (
        torch.nn.functional.cosine_similarity(near.flatten(), exact.flatten(), dim=0) > 0.9
    )  # it blurs ties between plans


ONES = torch.ones(4, 2, dtype=torch.float64)
BAD_CLOUDS = {
    "dimensions": ((ONES, ONES[:, :1]), ValueError, "dimension 2 and y has 1"),
    "dtypes": ((ONES, ONES.float()), TypeError, "torch.float64.*torch.float32"),
    "devices": ((ONES, ONES.to("meta")), TypeError, "cpu and y is torch.float64 on meta"),
    "empty": ((ONES[:0], ONES), ValueError, "at least one point"),
    "NaN": ((ONES, ONES * math.nan), ValueError, "y has 4 points that are infinite or NaN"),
    "flat": ((ONES[0], ONES[0]), ValueError, r"\(points, dim\)"),
    "integers": ((ONES.long(), ONES.long()), TypeError, "float32 or float64"),
    "array": ((ONES.numpy(), ONES), TypeError, "ndarray"),
}


@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("case", BAD_CLOUDS)
def test_bad_clouds_are_one_clear_error(name, case):
    (x, y), error, message = BAD_CLOUDS[case]
    with pytest.raises(error, match=message):
        DISTANCES[name](x, y)


# ------------------------------------------------------------------------------------------------------- Wasserstein


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_exact_transport_is_the_best_assignment(dim):
    x, y = clouds(60, 60, dim)
    cost = torch.cdist(x, y).square().numpy()
    rows, columns = linear_sum_assignment(cost)
    assert float(wasserstein2_squared(x, y, "exact")) == pytest.approx(cost[rows, columns].mean(), rel=1e-10)


def test_weights_and_unequal_sizes():
    """A point of weight 2 is two points; a point of weight 0 is none."""
    x, y = clouds(5, 7, 2)
    weights = torch.tensor([2.0, 1.0, 0.0, 1.0, 3.0])
    repeated = x.repeat_interleave(weights.long(), dim=0)
    for method in ("exact", "sinkhorn"):
        weighted = wasserstein2_squared(x, y, method, x_weights=weights, blur=0.01)
        torch.testing.assert_close(weighted, wasserstein2_squared(repeated, y, method, blur=0.01), rtol=1e-2, atol=0.0)
    exact = wasserstein2_squared(x, y, "exact", x_weights=weights)
    torch.testing.assert_close(exact, wasserstein2_squared(repeated, y, "exact"))


def test_auto_is_exact_on_the_cpu():
    x, y = clouds()
    assert wasserstein2_squared(x, y) == wasserstein2_squared(x, y, "exact")


@pytest.mark.parametrize("dim", [2, 20])
def test_sinkhorn_is_near_exact_and_a_little_low(dim):
    x, y = clouds(500, 500, dim)
    ratio = float(wasserstein2_squared(x, y, "sinkhorn") / wasserstein2_squared(x, y, "exact"))
    assert 0.95 < ratio < 1.001


def test_gaussian_closed_form():
    zero, one = torch.zeros(3), torch.eye(3)
    # Commuting covariances: ‖m1 - m2‖² + Σ(√a - √b)².
    diagonal = torch.diag(torch.tensor([4.0, 9.0, 0.25]))
    expected = 3.0 + 1.0 + 4.0 + 0.25
    assert float(gaussian_wasserstein2_squared(zero, one, zero + 1.0, diagonal)) == pytest.approx(expected)
    assert float(gaussian_wasserstein2_squared(zero, diagonal, zero, diagonal)) == pytest.approx(0.0, abs=1e-12)
    # Rotating both leaves it alone; the formula is symmetric.
    turn = torch.linalg.qr(torch.arange(9.0).reshape(3, 3).sin()).Q
    first, second = turn @ diagonal @ turn.mT, torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.5]])
    value = gaussian_wasserstein2_squared(zero, first, zero, second)
    torch.testing.assert_close(gaussian_wasserstein2_squared(zero, second, zero, first), value)
    torch.testing.assert_close(gaussian_wasserstein2_squared(zero, diagonal, zero, turn.mT @ second @ turn), value)


@pytest.mark.parametrize("dim", [2, 10, 20])
@pytest.mark.parametrize("panel", ["mean", "covariance"])
def test_correction_lowers_the_bias(dim, panel):
    """The paper's two panels at 200 points; configs/w2_bias.yaml has them at more."""
    mean = torch.ones(dim) if panel == "mean" else torch.zeros(dim)
    covariance = torch.eye(dim) if panel == "mean" else torch.eye(dim) / 2 + torch.ones(dim, dim) / 5
    exact = float(gaussian_wasserstein2_squared(torch.zeros(dim), torch.eye(dim), mean, covariance))
    root = torch.linalg.cholesky(covariance)
    generator = torch.Generator().manual_seed(dim)
    vanilla, corrected = [], []
    for _ in range(20):
        x, x2, y, y2 = torch.randn(4, 200, dim, generator=generator)
        y, y2 = mean + y @ root.mT, mean + y2 @ root.mT
        vanilla.append(float(wasserstein2_squared(x, y)))
        corrected.append(float(corrected_wasserstein2_squared(x, x2, y, y2)))
    assert abs(np.mean(corrected) - exact) < abs(np.mean(vanilla) - exact)


def test_corrected_estimator_of_equal_laws_is_zero_on_average():
    generator = torch.Generator().manual_seed(1)
    pools = [torch.randn(4000, 5, generator=generator) for _ in range(4)]
    estimate = corrected_wasserstein2_squared(*pools, repeats=40, subsample=100, seed=3)
    assert abs(estimate.mean) < 3.0 * estimate.standard_error
    again = corrected_wasserstein2_squared(*pools, repeats=40, subsample=100, seed=3)
    assert again == estimate
    values = [float(corrected_wasserstein2_squared(*(pool[k : k + 50] for pool in pools))) for k in range(0, 500, 50)]
    assert min(values) < 0.0 < max(values)  # not clipped


@pytest.mark.parametrize("options", [{}, {"repeats": 3, "subsample": 50, "seed": 0}])
def test_a_cloud_that_is_given_twice_corrects_nothing(options):
    x, y = torch.randn(2, 200, 3, generator=torch.Generator().manual_seed(1))
    for clouds, names in (((x, x, y, y + 1.0), "x and x2"), ((x, x + 1.0, y, y.clone()), "y and y2")):
        with pytest.raises(ValueError, match=rf"{names} are the same points, .* halves: \*x.chunk\(2\)"):
            corrected_wasserstein2_squared(*clouds, **options)
    with pytest.raises(ValueError, match="x and y are the same points"):
        corrected_wasserstein2_squared(x, y, x, y + 1.0, **options)
    corrected_wasserstein2_squared(*x.chunk(2), *y.chunk(2), **(options | {"subsample": 50} if options else {}))


def test_sliced_distance_of_a_shift():
    """Between a cloud and itself moved by v the distance along θ is ⟨θ, v⟩², on average ‖v‖²/dim."""
    x, _ = clouds(400, 10, 4)
    shift = torch.tensor([1.0, -2.0, 0.5, 0.0])
    # ⟨θ, v⟩² spreads as widely as its mean in 4-D: 1.4 % standard error over 5000 directions.
    value = float(sliced_wasserstein2_squared(x, x + shift, projections=5000, seed=1))
    assert value == pytest.approx(float(shift.square().sum()) / 4, rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: wasserstein2_squared(x, x, "fast"), "method is one of"),
        (lambda x: wasserstein2_squared(x, x, x_weights=torch.ones(3)), r"x_weights is \(200,\)"),
        (lambda x: wasserstein2_squared(x, x, x_weights=-torch.ones(200)), "non-negative"),
        (lambda x: wasserstein2_squared(x, x, y_weights=torch.zeros(200)), "not all zero"),
        (lambda x: wasserstein2_squared(x, x, "sinkhorn", blur=0.0), "blur is a positive"),
        (lambda x: wasserstein2_squared(x, x, "sinkhorn", scaling=1.0), "scaling is between"),
        (lambda x: corrected_wasserstein2_squared(x, x, x, x, repeats=5), "needs at least 2"),
        (lambda x: corrected_wasserstein2_squared(x, x, x, x, repeats=5, seed=0, subsample=201), "of 1 to 200 points"),
        (lambda x: corrected_wasserstein2_squared(x, x, x, x, seed=0), "go with repeats"),
        (lambda x: sliced_wasserstein2_squared(x, x, projections=0, seed=0), "positive number"),
        (lambda x: maximum_mean_discrepancy_squared(x, x, bandwidth=-1.0), "bandwidth is a positive"),
        (lambda x: gaussian_wasserstein2_squared(x[0], torch.eye(2), x[0], torch.eye(3)), r"covariances \(dim, dim\)"),
        (lambda x: gaussian_wasserstein2_squared(x[0], -torch.eye(3), x[0], torch.eye(3)), "not symmetric and non-neg"),
        (lambda x: kernel_stein_discrepancy(x, -x, statistic="W"), "'V' or 'U'"),
        (lambda x: kernel_stein_discrepancy(x, -x, statistic="U"), "squared=True"),
        (lambda x: kernel_stein_discrepancy(x, -x, beta=0.5), "beta < 0 < c"),
        (lambda x: kernel_stein_discrepancy(x, -x[:5]), r"score is \(200, 3\)"),
        (lambda x: kernel_stein_discrepancy(x[:1], -x[:1], statistic="U", squared=True), "two points"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(clouds()[0])


# --------------------------------------------------------------------------------------------- energy, MMD and Stein


def test_energy_distance_is_the_literal_double_loop():
    x, y = clouds(200, 170)

    def mean_distance(a, b):
        return sum(math.dist(p, q) for p in a.tolist() for q in b.tolist()) / (len(a) * len(b))

    expected = 2 * mean_distance(x, y) - mean_distance(x, x) - mean_distance(y, y)
    assert float(energy_distance_squared(x, y)) == pytest.approx(expected, abs=1e-10)


def test_tiles_add_up(monkeypatch):
    x, y = clouds(300, 270)
    whole = energy_distance_squared(x, y), kernel_stein_discrepancy(x, -x)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(energy_distance_squared(x, y), x)
    monkeypatch.setattr("torchsrk.metrics.clouds.TILE", 64)
    torch.testing.assert_close(energy_distance_squared(x, y), whole[0])
    torch.testing.assert_close(kernel_stein_discrepancy(x.detach(), -x.detach()), whole[1])
    torch.testing.assert_close(torch.autograd.grad(energy_distance_squared(x, y), x)[0], gradient)


def test_energy_distance_of_two_points_and_of_gaussians():
    """‖x - y‖ for x ~ N(0, 1), y ~ N(m, 1) has a closed mean; the V-statistic's bias is E‖X - X'‖/n a cloud."""
    assert float(energy_distance_squared(torch.tensor([[0.0]]), torch.tensor([[3.0]]))) == pytest.approx(6.0)
    generator = torch.Generator().manual_seed(3)
    n, shift = 4000, 1.0
    x, y = torch.randn(n, 1, generator=generator), torch.randn(n, 1, generator=generator) + shift
    folded = 2 / math.sqrt(math.pi) * math.exp(-(shift**2) / 4) + shift * math.erf(shift / 2)
    within = 2 / math.sqrt(math.pi)
    exact = 2 * folded - 2 * within + 2 * within / n
    between, own_x, own_y = torch.cdist(x, y), torch.cdist(x, x), torch.cdist(y, y)
    of_x, of_y = 2 * (between.mean(1) - own_x.mean(1)), 2 * (between.mean(0) - own_y.mean(1))  # each point's share
    standard_error = math.sqrt(float(of_x.var() + of_y.var()) / n)
    assert abs(float(energy_distance_squared(x, y)) - exact) < 4 * standard_error
    assert exact > 20 * standard_error


def test_mmd_is_the_literal_mean_of_kernels():
    x, y = clouds(50, 40)

    def mean_kernel(a, b):
        return torch.exp(-torch.cdist(a, b).square() / (2 * 0.7**2)).mean()

    expected = mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)
    torch.testing.assert_close(maximum_mean_discrepancy_squared(x, y, bandwidth=0.7), expected)


KERNELS = [(-0.5, 1.0), (-0.3, 2.0)]


@pytest.mark.parametrize(("beta", "c"), KERNELS)
def test_stein_kernel_is_its_definition(beta, c):
    """Entry by entry, with the derivatives of k taken by autograd."""
    x, _ = clouds(15, 1)
    score = -x.pow(3)

    def entry(p, s, q, r):
        p, q = p.clone().requires_grad_(), q.clone().requires_grad_()
        k = (c**2 + (p - q).square().sum()) ** beta
        by_p, by_q = torch.autograd.grad(k, (p, q), create_graph=True)
        mixed = sum(torch.autograd.grad(by_p[i], q, retain_graph=True)[0][i] for i in range(len(p)))
        return float(((s @ r) * k + s @ by_q + r @ by_p + mixed).detach())

    entries = torch.tensor([[entry(x[i], score[i], x[j], score[j]) for j in range(15)] for i in range(15)])
    kernel = SteinKernel(x, score, beta=beta, c=c)
    torch.testing.assert_close(kernel.tile(slice(None), slice(None)), entries, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kernel.diagonal(), entries.diagonal())


@pytest.mark.parametrize(("beta", "c"), KERNELS)
def test_stein_discrepancy_is_the_literal_double_loop(beta, c):
    n, dim = 200, 3
    x, _ = clouds(n, 1, dim)
    score = -x.pow(3)
    points, scores = x.tolist(), score.tolist()
    entries = torch.empty(n, n)
    for i, j in itertools.product(range(n), range(n)):
        r = [a - b for a, b in zip(points[i], points[j], strict=True)]
        squared = sum(a * a for a in r)
        q = c**2 + squared
        value = sum(a * b for a, b in zip(scores[i], scores[j], strict=True)) * q**beta
        # ∇_x k = 2β r q^(β-1) = -∇_y k
        value += sum((b - a) * d for a, b, d in zip(scores[i], scores[j], r, strict=True)) * 2 * beta * q ** (beta - 1)
        value -= 2 * beta * dim * q ** (beta - 1) + 4 * beta * (beta - 1) * squared * q ** (beta - 2)
        entries[i, j] = value
    options = {"beta": beta, "c": c}
    assert float(kernel_stein_discrepancy(x, score, squared=True, **options)) == pytest.approx(
        float(entries.mean()), abs=1e-10
    )
    root = kernel_stein_discrepancy(x, lambda y: -y.pow(3), **options)
    assert float(root) == pytest.approx(math.sqrt(float(entries.mean())), abs=1e-10)
    unbiased = kernel_stein_discrepancy(x, score, statistic="U", squared=True, **options)
    off_diagonal = (entries.sum() - entries.trace()) / (n * (n - 1))
    assert float(unbiased) == pytest.approx(float(off_diagonal), abs=1e-10)


def stein_p_value(x, score, draws=5000):
    """Of the hypothesis that x are draws of the target: the V-statistic against its wild bootstrap.

    Under the hypothesis the Stein kernel's mean is zero in each argument, and random signs reproduce the law of the
    degenerate V-statistic.
    """
    matrix = SteinKernel(x, score, beta=-0.5, c=1.0).tile(slice(None), slice(None))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (draws, len(x)), generator=generator, dtype=torch.float64) * 2.0 - 1.0
    null = ((signs @ matrix) * signs).sum(-1)
    return float((1 + (null >= matrix.sum()).sum()) / (1 + draws))


@pytest.mark.slow
def test_stein_discrepancy_separates_euler_maruyamas_law_from_the_target():
    """Level 1e-3: exact draws of the 20-D mixture are not rejected, Euler-Maruyama's at h = 0.5 are."""
    target = mixture(20)
    exact = target.sample((2000,), seed=1)
    biased = sample(Langevin(target), exact, integrator="em", step_size=0.5, num_steps=60, seed=2).final
    assert stein_p_value(exact, -target.grad(exact)) > 1e-3
    assert stein_p_value(biased, -target.grad(biased)) < 1e-3


def test_stein_discrepancy_far_from_the_origin():
    """In float32, 1e4 away: the differences count, not the norms."""
    x = clouds(dtype=torch.float32, offset=1e4)[0]
    score = 1e4 - x
    near = kernel_stein_discrepancy((x.double() - 1e4).float(), score)
    torch.testing.assert_close(kernel_stein_discrepancy(x, score), near, rtol=1e-4, atol=0.0)


def test_stein_progress_is_shown_on_request(capsys):
    kernel_stein_discrepancy(clouds()[0], -clouds()[0], progress=True)
    assert "kernel Stein discrepancy" in capsys.readouterr().err


@pytest.mark.slow
def test_memory_stays_at_a_few_tiles():
    code = """
from torchsrk.metrics import energy_distance_squared, kernel_stein_discrepancy
x, y = torch.randn(200, 20), torch.randn(200, 20)
energy_distance_squared(x, y), kernel_stein_discrepancy(x, -x)
x, y = torch.randn(6_000, 20, requires_grad=True), torch.randn(6_000, 20)
before = peak()
energy_distance_squared(x, y).backward()
kernel_stein_discrepancy(x.detach(), -x.detach())
print(peak() - before)
"""
    assert run_numbers(code)[0] < 60.0  # one matrix of all pairs is 144 MB
