"""DiffusionDistribution keeps the contract of torch's distributions, over nine of them, and its draws have their laws.

Moments are compared with exact draws of the target by z-tests at level 1e-4 each, with fixed seeds: some seventy of
them, so that a right sampler fails one with a probability below 1 % when the seeds are first chosen.
"""

import copy
import math
import pickle

import pytest
import torch
from scipy import stats
from torch import distributions as D
from torch import nn
from torch.distributions import constraints

from tests import forks
from tests.memory import run_numbers
from tests.problems import mixture
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential, Potential, UnconstrainedPotential

LEVEL = 1e-4
TARGETS = {
    "normal": lambda: D.Normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.5])),
    "multivariate normal": lambda: D.MultivariateNormal(torch.ones(2), torch.tensor([[1.0, 0.5], [0.5, 2.0]])),
    "student": lambda: D.StudentT(torch.tensor([5.0, 9.0])),
    "gamma": lambda: D.Gamma(torch.tensor([3.0, 2.0]), torch.tensor([2.0, 1.0])),
    "beta": lambda: D.Beta(torch.tensor(2.0), torch.tensor(3.0)),
    "dirichlet": lambda: D.Dirichlet(torch.tensor([[2.0, 3.0, 4.0], [1.5, 2.0, 2.5]])),
    "lkj": lambda: D.LKJCholesky(3, 2.0),
    "mixture": lambda: D.MixtureSameFamily(
        D.Categorical(torch.tensor([0.3, 0.7])), D.Normal(torch.tensor([-1.0, 1.0]), torch.tensor([0.8, 0.6]))
    ),
    "independent": lambda: D.Independent(D.Gamma(torch.tensor([3.0, 2.0]), torch.tensor([2.0, 1.0])), 1),
}
# A standard deviation of 0.5 wants smaller steps than the others; a heavy tail is slow, and allows longer ones.
STEP_SIZES = {"normal": 0.05, "student": 0.1}
NAMES = list(TARGETS)


def diffusion(name, **options):
    step_size = STEP_SIZES.get(name, 0.08)
    options = {"step_size": step_size, "num_steps": math.ceil(12.0 / step_size), "seed": 3} | options
    return DiffusionDistribution(TARGETS[name](), **options)


@pytest.mark.parametrize("name", NAMES)
def test_shapes(name):
    target, short = TARGETS[name](), diffusion(name, num_steps=2)
    assert (short.batch_shape, short.event_shape) == (target.batch_shape, target.event_shape)
    for shape in ((), (3,), (2, 3), (0,), (1,)):
        expected = torch.Size(shape) + target.batch_shape + target.event_shape
        assert short.sample(shape).shape == expected
        assert short.rsample(torch.Size(shape)).shape == expected
    assert short.log_prob(short.sample((4,))).shape == (4, *target.batch_shape)


@pytest.mark.parametrize("name", NAMES)
def test_expand(name):
    target = TARGETS[name]()
    wide = diffusion(name, num_steps=2).expand((3, *target.batch_shape))
    assert wide.batch_shape == (3, *target.batch_shape)
    assert wide.event_shape == target.event_shape
    draws = wide.sample((5,))
    assert draws.shape == (5, 3, *target.batch_shape, *target.event_shape)
    assert len(draws.reshape(15, -1).unique(dim=0)) == 15  # expanded draws are independent
    torch.testing.assert_close(wide.log_prob(draws), target.expand(wide.batch_shape).log_prob(draws))
    with pytest.raises(RuntimeError):
        wide.expand((2, *target.batch_shape))


@pytest.mark.parametrize("name", NAMES)
def test_support_and_log_prob(name):
    target, short = TARGETS[name](), diffusion(name, num_steps=5)
    draws = short.sample((50,))
    assert short.support.check(draws).all()
    torch.testing.assert_close(short.log_prob(draws), target.log_prob(draws))
    torch.testing.assert_close(short.unnormalized_log_prob(draws), target.log_prob(draws))
    with pytest.raises(ValueError, match="support"):
        diffusion(name, num_steps=5, validate_args=True).log_prob(torch.full_like(draws, math.nan))


def exact_draws(name, count):
    """From the target itself, but for LKJCholesky: torch's sampler has not the law of its own log_prob.

    E[L₃₁²] is 1/(n + 2η - 1) = 1/6 by the symmetry of the LKJ law: its log_prob has that, its sampler 0.213, which
    is wrong. So its draws here are weighted normals.
    """
    target = TARGETS[name]()
    if name != "lkj":
        return target.sample((count,))
    transform = D.biject_to(target.support)
    free = 1.2 * torch.randn(20 * count, 3)
    points = transform(free)
    log_weights = target.log_prob(points) + transform.log_abs_det_jacobian(free, points)
    log_weights = log_weights - D.Normal(0.0, 1.2).log_prob(free).sum(-1)
    return points[torch.multinomial(torch.softmax(log_weights, 0), count, replacement=True)]


@pytest.mark.parametrize("name", NAMES)
def test_law(name):
    """Means, and second moments of all pairs of entries, against exact draws."""
    torch.manual_seed(0)
    ours = diffusion(name).sample((4000,)).reshape(4000, -1)
    exact = exact_draws(name, 20_000).reshape(20_000, -1)

    def moments(x):
        return torch.cat((x, (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(1)), dim=1)

    a, b = moments(ours), moments(exact)
    error = (a.var(0) / len(a) + b.var(0) / len(b)).sqrt()
    distance = (a.mean(0) - b.mean(0)).abs() / error.clamp_min(1e-12)
    assert distance.max() < stats.norm.isf(LEVEL / 2)


def test_gradients_reach_the_targets_parameters():
    """d E[x²]/ds = 2s for N(0, s²): every draw its own target, so that the gradients have a standard error."""
    scale = torch.full((3000,), 1.3, requires_grad=True)
    target = D.Normal(torch.zeros(3000), scale)
    draws = DiffusionDistribution(target, step_size=0.1, num_steps=120, seed=1).rsample()
    (gradients,) = torch.autograd.grad(draws.square().sum(), scale)
    error = gradients.std() / math.sqrt(len(gradients))
    assert abs(gradients.mean() - 2 * 1.3) < 3 * error
    assert error < 0.2


@pytest.mark.parametrize("name", NAMES)
def test_draws_and_graphs(name):
    """What PyTorch asks of its own: draws of ``sample`` are detached, those of ``rsample`` need not be."""
    short = diffusion(name, num_steps=2)
    assert not short.sample((3,)).requires_grad
    with torch.no_grad():
        assert not short.rsample((3,)).requires_grad
    assert short.has_rsample
    assert isinstance(short.arg_constraints, dict)
    assert not short.has_enumerate_support
    with pytest.raises(NotImplementedError):
        short.enumerate_support()


def test_memory_of_rsample_is_bounded():
    """200 steps of 5,000 particles: 40 kB a state, and a dozen tensors a step if all were kept."""
    code = """
from torch import distributions as D
from torchsrk.distributions import DiffusionDistribution
scale = torch.ones((), requires_grad=True)
def gradient(steps):
    target = D.Independent(D.Normal(torch.zeros(2), scale.expand(2)), 1)
    draws = DiffusionDistribution(target, step_size=0.05, num_steps=steps, seed=0).rsample((5_000,))
    draws.square().mean().backward()
gradient(2)
before = peak()
gradient(200)
print(peak() - before)
"""
    (growth,) = run_numbers(code)
    assert growth < 200 * 12 * 0.04 / 5


def test_rsample_and_sample_are_the_same_draws():
    pair = [diffusion("gamma", num_steps=20), diffusion("gamma", num_steps=20)]
    torch.testing.assert_close(pair[0].sample((7,)), pair[1].rsample((7,)))


def test_seeds():
    free = diffusion("gamma", num_steps=3, seed=None)
    torch.manual_seed(5)
    first, second = free.sample((4,)), free.sample((4,))
    torch.manual_seed(5)
    assert torch.equal(free.sample((4,)), first)
    assert not torch.equal(first, second)
    own = [diffusion("gamma", num_steps=3).sample((4,)) for _ in range(2)]
    assert torch.equal(*own)
    same = diffusion("gamma", num_steps=3)
    assert not torch.equal(same.sample((4,)), same.sample((4,)))
    state = torch.random.get_rng_state()
    diffusion("gamma", num_steps=3, initial=D.Gamma(torch.ones(2), torch.ones(2))).sample((4,))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("warm_start", [False, True])
def test_an_expanded_copy_has_draws_of_its_own(warm_start):
    """Neither those that the original made nor those that it will make; and the same ones in every run."""

    def draws():
        original = diffusion("gamma", num_steps=3, warm_start=warm_start)
        drawn = [original.sample((6,))]
        copies = [original.expand((2,)), original.expand((2,)), original.expand((5, 2))]
        for _ in range(3):
            drawn += [each.sample((6,)) for each in (original, *copies)]
        return drawn

    drawn = draws()
    numbers = torch.cat([each.flatten() for each in drawn])
    assert len(numbers.unique()) == len(numbers)
    assert all(torch.equal(a, b) for a, b in zip(drawn, draws(), strict=True))


def test_an_expanded_copy_keeps_warm_chains():
    options = {"step_size": 1e-6, "num_steps": 1, "seed": 0, "warm_start": True}
    starts = torch.tensor([[40.0, 50.0], [60.0, 70.0], [80.0, 90.0]])
    warm = DiffusionDistribution(TARGETS["gamma"](), initial=starts, **options)
    warm.sample((3,))
    wide = warm.expand((4, 2))
    assert wide.state_dict()["chains"].shape == (3, 4, 2, 1)
    torch.testing.assert_close(wide.sample((3,)), starts.unsqueeze(1).expand(3, 4, 2), rtol=0.02, atol=0.0)
    # What starts every chain is not taken for a start of every entry of the batch.
    cold = DiffusionDistribution(TARGETS["gamma"](), initial=starts, **options).expand((3, 2))
    torch.testing.assert_close(cold.sample((3,)), starts.unsqueeze(1).expand(3, 3, 2), rtol=0.02, atol=0.0)


def test_chains():
    chained = diffusion("gamma", chain_length=10, thin=25)
    draws = chained.sample((4001,))
    assert draws.shape == (4001, 2)
    exact = TARGETS["gamma"]()
    assert ((draws.mean(0) - exact.mean).abs() < 6 * exact.stddev / math.sqrt(400)).all()  # 401 chains at least
    # The second draw of a chain is what a run of one more interval gives.
    one, two = (diffusion("gamma", num_steps=50, chain_length=n, thin=25, seed=9) for n in (1, 2))
    torch.testing.assert_close(two.sample((2,))[0], one.sample((1,))[0])


def test_warm_start():
    warm = diffusion("gamma", num_steps=5, warm_start=True)
    warm.sample((6,))
    state = copy.deepcopy(warm.state_dict())
    later = [warm.sample((6,)), warm.sample((9,)), warm.sample((2,))]
    again = diffusion("gamma", num_steps=5, warm_start=True)
    again.load_state_dict(state)
    assert all(torch.equal(a, again.sample(a.shape[:1])) for a in later)
    assert warm.state_dict()["chains"].shape[0] == 9
    with pytest.raises(ValueError, match="chains of this distribution have shape"):
        again.load_state_dict({"calls": 0, "chains": torch.zeros(3)})


def test_warm_chains_go_on():
    """Chains of one step a call: after 300 calls they have the target's law, as cold ones have not."""
    warm = DiffusionDistribution(
        D.Normal(torch.tensor(5.0), torch.tensor(1.0)), step_size=0.1, num_steps=1, seed=0, warm_start=True
    )
    for _ in range(300):
        draws = warm.sample((500,))
    assert abs(draws.mean() - 5.0) < 0.3
    cold = DiffusionDistribution(D.Normal(torch.tensor(5.0), torch.tensor(1.0)), step_size=0.1, num_steps=1, seed=0)
    assert cold.sample((500,)).mean() < 1.5


def double_well(x):
    return -(x.square() - 1.0).square().sum(-1)


def test_a_log_density_and_a_potential():
    by_function = DiffusionDistribution(double_well, event_shape=(2,), step_size=0.05, num_steps=40, seed=1)
    potential = FunctionPotential(lambda x: -double_well(x), dim=2)
    by_potential = DiffusionDistribution(potential, step_size=0.05, num_steps=40, seed=1)
    torch.testing.assert_close(by_function.sample((9,)), by_potential.sample((9,)))
    point = torch.tensor([0.5, 2.0])
    torch.testing.assert_close(by_potential.unnormalized_log_prob(point), double_well(point))
    for unnormalised in (by_function, by_potential):
        with pytest.raises(NotImplementedError, match="unnormalized_log_prob"):
            unnormalised.log_prob(point)
        with pytest.raises(NotImplementedError, match="estimate from draws"):
            _ = unnormalised.mean


def test_a_potential_keeps_its_gradient():
    class Refuses(Potential):
        dim = 2

        def forward(self, x):
            raise AssertionError("the energy was differentiated")

        def grad(self, x):
            return x

    DiffusionDistribution(Refuses(), step_size=0.1, num_steps=3, seed=0).sample((4,))


def test_a_batch_of_targets():
    centres = torch.tensor([[0.0, 0.0], [5.0, -5.0], [9.0, 1.0]])
    batch = DiffusionDistribution(
        lambda x: -0.5 * (x - centres).square().sum(-1),
        event_shape=(2,),
        batch_shape=(3,),
        step_size=0.1,
        num_steps=150,
        seed=0,
    )
    draws = batch.sample((2000,))
    assert draws.shape == (2000, 3, 2)
    assert ((draws.mean(0) - centres).abs() < 4.5 / math.sqrt(2000)).all()


@pytest.mark.parametrize("support", [constraints.lower_cholesky, constraints.positive_definite])
def test_matrices(support):
    """A Wishart law, by its covariance or by the Cholesky factor of it: E[Σ] = df·V."""
    scale = torch.tensor([[1.0, 0.3], [0.3, 0.5]])
    wishart = D.Wishart(df=torch.tensor(5.0), covariance_matrix=scale, validate_args=False)

    def log_density(x):
        if support is constraints.positive_definite:
            return wishart.log_prob(x)
        diagonal = x.diagonal(dim1=-2, dim2=-1)
        return wishart.log_prob(x @ x.mT) + 2 * diagonal[..., 0].log() + diagonal[..., 1].log()

    # By logarithms of the diagonal the tail is exp(-exp(2x)), so steep that particles at 0.03 were lost.
    options = {"event_shape": (2, 2), "support": support, "step_size": 0.008, "num_steps": 300, "seed": 2}
    draws = DiffusionDistribution(log_density, **options).sample((1500,))
    assert support.check(draws).all()
    covariances = draws if support is constraints.positive_definite else draws @ draws.mT
    error = covariances.std(0) / math.sqrt(len(draws))
    assert ((covariances.mean(0) - 5 * scale).abs() < 4.5 * error).all()


def test_initial_points():
    far = torch.tensor([40.0, 50.0])
    options = {"num_steps": 1, "step_size": 1e-6}
    from_tensor = DiffusionDistribution(TARGETS["gamma"](), initial=far, seed=0, **options).sample((3,))
    torch.testing.assert_close(from_tensor, far.expand(3, 2), rtol=0.02, atol=0.0)
    start = D.Uniform(far, far + 1)
    from_law = DiffusionDistribution(TARGETS["gamma"](), initial=start, seed=0, **options).sample((3,))
    assert ((from_law > 0.98 * far) & (from_law < 1.02 * (far + 1))).all()
    assert len(from_law[:, 0].unique()) == 3
    with pytest.raises(ValueError, match="don't broadcast to 3 chains"):
        DiffusionDistribution(TARGETS["gamma"](), initial=torch.ones(5), seed=0, **options).sample((3,))


@pytest.mark.parametrize(
    "initial",
    [
        D.Uniform(40.0, 41.0),  # of scalars
        D.Uniform(torch.full((1,), 40.0), torch.full((1,), 41.0)),
        D.Uniform(torch.full((3,), 40.0), torch.full((3,), 41.0)),
        D.Uniform(torch.full((5, 3), 40.0), torch.full((5, 3), 41.0)),
        D.Independent(D.Uniform(torch.full((3,), 40.0), torch.full((3,), 41.0)), 1),
    ],
    ids=lambda initial: str(tuple(initial.batch_shape + initial.event_shape)),
)
@pytest.mark.parametrize("chains", [1, 3, 5, 7])
def test_every_chain_and_entry_has_a_start_of_its_own(initial, chains):
    """As many chains as entries of the batch, or of a point, are no special case."""
    target = D.Independent(D.Gamma(torch.full((5, 3), 40.0), torch.ones(5, 3)), 1)
    far = DiffusionDistribution(target, initial=initial, num_steps=1, step_size=1e-9, seed=0)
    draws = far.sample((chains,))
    assert ((draws > 39.9) & (draws < 41.1)).all()
    starts = far._initial_points(chains, 0)
    assert starts.shape == (chains, 5, 3)
    assert len(starts.unique()) == starts.numel()


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (5, 1), (5, 3), (1, 5, 3), (7, 5, 3), (7, 1, 1)])
def test_shapes_of_given_starts(shape):
    target = D.Independent(D.Gamma(torch.full((5, 3), 40.0), torch.ones(5, 3)), 1)
    given = torch.linspace(30.0, 50.0, math.prod(shape)).reshape(shape)
    draws = DiffusionDistribution(target, initial=given, num_steps=1, step_size=1e-9, seed=0).sample((7,))
    torch.testing.assert_close(draws, given.expand(7, 5, 3), rtol=1e-3, atol=0.0)


@pytest.mark.parametrize(
    "initial",
    [
        *(torch.ones(shape) for shape in ((7, 3), (7,), (6, 5, 3), (1, 7, 5, 3), (7, 5))),
        *(D.Gamma(torch.ones(shape), 1.0) for shape in ((7, 3), (7, 5, 3), (5,))),
        D.Dirichlet(torch.ones(2)),
    ],
    ids=lambda initial: str(tuple(getattr(initial, "shape", None) or initial.batch_shape + initial.event_shape)),
)
def test_starts_of_other_shapes_are_refused(initial):
    target = D.Independent(D.Gamma(torch.ones(5, 3), torch.ones(5, 3)), 1)
    with pytest.raises(ValueError, match="don't broadcast to"):
        DiffusionDistribution(target, initial=initial, num_steps=1, step_size=1e-3, seed=0).sample((7,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles(dtype):
    """Draws of a von Mises law are on one turn, however far the chains went."""
    centre, concentration = torch.tensor([0.5, 3.0], dtype=dtype), torch.tensor([1.0, 0.3], dtype=dtype)
    options = {"step_size": 0.25, "num_steps": 60, "seed": 1, "warm_start": True}
    angles = DiffusionDistribution(D.VonMises(centre, concentration), **options)
    for _ in range(3):
        draws = angles.sample((3000,)).double()
        assert ((draws > -math.pi) & (draws <= math.pi)).all()
        assert angles.state_dict()["chains"].abs().max() < 3.15
    for i in range(2):
        law = stats.vonmises(float(concentration[i]), loc=float(centre[i]))
        # On (-π, π] the law's distribution function, from -π on.
        cumulative = lambda x, law=law: law.cdf(x) - law.cdf(-math.pi)  # noqa: E731
        assert stats.kstest(draws[:, i].numpy(), cumulative).pvalue > LEVEL
    pair = D.Independent(D.VonMises(centre, concentration), 1)
    mixed = D.MixtureSameFamily(D.Categorical(torch.ones(2, dtype=dtype)), D.VonMises(centre, concentration))
    for target in (pair, mixed):
        far = DiffusionDistribution(target, step_size=30.0, num_steps=3, seed=0, integrator="em")
        assert far.rsample((500,)).abs().max() < math.pi
    with pytest.raises(ValueError, match="sample the angles"):
        DiffusionDistribution(D.TransformedDistribution(pair, D.AffineTransform(0.0, 2.0)), **options)


SUPPORTS = {
    "π": ((), constraints.interval(-math.pi, math.pi)),
    "half open": ((), constraints.half_open_interval(-math.pi, math.pi)),
    "tensors": ((2,), constraints.independent(constraints.interval(torch.zeros(2), torch.tensor([1.0, 1e-3])), 1)),
    "unit": ((), constraints.unit_interval),
    "positive": ((), constraints.positive),
    "above": ((), constraints.greater_than(1000.0)),
    "from": ((), constraints.greater_than_eq(0.1)),
    "below": ((), constraints.less_than(-0.1)),
    "simplex": ((100,), constraints.simplex),
    "cholesky": ((3, 3), constraints.lower_cholesky),
    "covariance": ((3, 3), constraints.positive_definite),
    "correlation": ((20, 20), constraints.corr_cholesky),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SUPPORTS)
def test_draws_are_in_the_support_whatever_rounding_does(name, dtype):
    event_shape, support = SUPPORTS[name]
    potential = UnconstrainedPotential(lambda x: x, event_shape, support)
    x = torch.randn(500, potential.dim, generator=torch.Generator().manual_seed(0)).to(dtype)
    for spread in (1.0, 10.0) if "c" in name else (1.0, 10.0, 80.0, 1e4):
        points = potential.constrain(
            -spread * x.abs() if name in ("positive", "above", "from", "below") else spread * x
        )
        assert support.check(points).all(), spread
        if points.ndim == 1:
            assert support.check(points.double()).all()


def test_draws_that_overflow_are_refused():
    gamma = diffusion("gamma", num_steps=1)
    for value in (math.inf, -1.0):
        with pytest.raises(ValueError, match=r"too large or too small for torch.float64.*a smaller step size"):
            gamma._check_inside(torch.tensor([1.0, value]))


def test_composes():
    gamma = diffusion("gamma", num_steps=20)
    assert D.Independent(gamma, 1).rsample((3,)).shape == (3, 2)
    logged = D.TransformedDistribution(gamma, [D.transforms.ExpTransform().inv])
    draws = logged.sample((3,))
    torch.testing.assert_close(logged.log_prob(draws), gamma.target.log_prob(draws.exp()) + draws)
    mixed = D.MixtureSameFamily(D.Categorical(torch.ones(2)), gamma)
    assert mixed.sample((5,)).shape == (5,)
    assert mixed.log_prob(torch.ones(5)).shape == (5,)
    twin = copy.deepcopy(gamma)
    assert torch.equal(twin.sample((3,)), gamma.sample((3,)))
    assert "step_size" in repr(gamma)


class Draws(torch.utils.data.IterableDataset):
    """A stream of batches."""

    def __init__(self, distribution):
        self.distribution = distribution

    def __iter__(self):
        return (self.distribution.sample((4,)) for _ in range(3))


DRAW = "import pickle, sys, torch; print(*pickle.load(open(sys.argv[1], 'rb')).sample((4,)).flatten().tolist())"


def test_in_data_pipelines_and_processes(tmp_path):
    batches = list(torch.utils.data.DataLoader(Draws(diffusion("gamma", num_steps=3)), batch_size=None))
    assert [batch.shape for batch in batches] == [(4, 2)] * 3
    (tmp_path / "pickled").write_bytes(pickle.dumps(diffusion("gamma", num_steps=3)))
    done = forks.run(DRAW, str(tmp_path / "pickled"))
    assert done.returncode == 0, done.stderr
    drawn = torch.tensor([float(number) for number in done.stdout.split()]).view(4, 2)
    torch.testing.assert_close(drawn, diffusion("gamma", num_steps=3).sample((4,)))


def test_dtype_follows_the_target():
    target = D.Normal(torch.zeros(2, dtype=torch.float32), torch.ones(2, dtype=torch.float32))
    assert DiffusionDistribution(target, step_size=0.1, num_steps=2).sample().dtype == torch.float32
    network = nn.Linear(3, 1, dtype=torch.float32)
    energy = FunctionPotential(nn.Sequential(network, nn.Flatten(-2)), dim=3)
    assert DiffusionDistribution(energy, step_size=0.1, num_steps=2).sample((2,)).dtype == torch.float32


def test_compiled_draws():
    options = {"step_size": 0.1, "num_steps": 30, "seed": 4}
    eager, compiled = (DiffusionDistribution(mixture(4), compile=c, **options).sample((50,)) for c in (False, True))
    torch.testing.assert_close(eager, compiled)
    eager, compiled = (diffusion("independent", compile=c).sample((50,)) for c in (False, True))
    torch.testing.assert_close(eager, compiled)


BAD = {
    "discrete": (lambda: DiffusionDistribution(D.Poisson(2.0), step_size=0.1, num_steps=3), ValueError, "discrete"),
    "no shape": (lambda: DiffusionDistribution(double_well, step_size=0.1, num_steps=3), ValueError, "event_shape"),
    "not a density": (lambda: DiffusionDistribution(3, step_size=0.1, num_steps=3), TypeError, "log density"),
    "two shapes": (lambda: diffusion("gamma", event_shape=(3,)), ValueError, "leave them out"),
    "no steps": (lambda: diffusion("gamma", num_steps=0), ValueError, "num_steps is a positive integer"),
    "thin": (lambda: diffusion("gamma", num_steps=3, thin=4), ValueError, "thin is at most"),
    "seed": (lambda: diffusion("gamma", seed=-1), ValueError, "a seed is an integer"),
    "step size": (lambda: diffusion("gamma", step_size=0.0), ValueError, "step_size is a positive number; got 0.0"),
    "scheme": (lambda: diffusion("gamma", integrator="nonsense"), ValueError, "unknown integrator 'nonsense'"),
    "initial": (lambda: diffusion("gamma", initial=[1.0, 2.0]), TypeError, "initial is a tensor, a distribution"),
    "initial outside": (
        lambda: diffusion("gamma", initial=torch.tensor([1.0, -1.0])).sample(),
        ValueError,
        "initial points outside the support",
    ),
    "no state": (lambda: diffusion("gamma").load_state_dict(None), ValueError, "calls and chains .* got NoneType"),
    "NaN chains": (
        lambda: diffusion("gamma").load_state_dict({"calls": 1, "chains": torch.full((5, 2, 1), torch.nan)}),
        ValueError,
        "chains has 10 entries that are infinite or NaN",
    ),
    "state": (lambda: diffusion("gamma").load_state_dict({"calls": 1}), ValueError, "calls and chains"),
    "negative shape": (lambda: diffusion("gamma").sample((-1,)), ValueError, "sample_shape"),
    "log density's shape": (
        lambda: DiffusionDistribution(torch.neg, event_shape=(2,), step_size=0.1, num_steps=3).sample((4,)),
        ValueError,
        "one number a point",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    attempt, error, message = BAD[name]
    with pytest.raises(error, match=message):
        attempt()


def test_starts_are_checked_whatever_torchs_default_is(monkeypatch):
    """torch.compile turns it off for the whole process at its first use."""
    monkeypatch.setattr(D.Distribution, "_validate_args", False)
    attempt, error, message = BAD["initial outside"]
    with pytest.raises(error, match=message):
        attempt()
    with pytest.raises(ValueError, match="infinite or NaN"):
        diffusion("gamma", initial=torch.tensor([1.0, -1.0]), validate_args=False).expand((3, 2)).sample()
