"""Small matrices of every particle's own: factors, solves, determinants."""

import pytest
import torch

from tests.compiled.test_same_numbers import (
    ONE_BY_ONE,
    SIDE_BY_SIDE,
    added_up,
    assert_same,
    both,
    some_at_a_time,
    start,
)
from torchsrk import Langevin, sample
from torchsrk.potentials import FunctionPotential

SIZE = 4
_GENERATOR = torch.Generator().manual_seed(0)
MATRIX = torch.randn(SIZE, SIZE, generator=_GENERATOR, dtype=torch.float64)
RIGHT = torch.randn(SIZE, 2, generator=_GENERATOR, dtype=torch.float64)


def own(x):
    """A matrix of each particle's own, whose rows a factorisation exchanges."""
    return MATRIX + 0.3 * torch.diag_embed(x) + 0.02 * x[..., :, None] * x.flip(-1)[..., None, :]


def positive(x):
    return own(x) @ own(x).mT + torch.eye(SIZE, dtype=x.dtype)


def right(x, *batch):
    return RIGHT.expand(*x.shape[:-1], *batch, SIZE, 2)


def squares(matrices):
    return matrices.square().flatten(1).sum(-1)


ENERGIES = {
    "cholesky": lambda x: squares(torch.linalg.cholesky(positive(x)).cos()),
    "upper cholesky": lambda x: squares(torch.linalg.cholesky(positive(x), upper=True).cos()),
    "cholesky_solve": lambda x: squares(torch.cholesky_solve(right(x), torch.linalg.cholesky(positive(x)))),
    "solve_triangular": lambda x: squares(torch.linalg.solve_triangular(positive(x), right(x), upper=True)),
    "solve_triangular from the right": lambda x: squares(
        torch.linalg.solve_triangular(positive(x), right(x).mT, upper=False, left=False)
    ),
    "solve_triangular with ones": lambda x: squares(
        torch.linalg.solve_triangular(own(x), right(x), upper=False, unitriangular=True)
    ),
    "solve": lambda x: squares(torch.linalg.solve(own(x), right(x))),
    "solve from the right": lambda x: squares(torch.linalg.solve(own(x), right(x).mT, left=False)),
    "solve for a vector": lambda x: squares(torch.linalg.solve(own(x), x.sin())),
    "solve a batch": lambda x: squares(torch.linalg.solve(own(x)[..., None, :, :], right(x, 3))),
    "solve with one matrix": lambda x: squares(torch.linalg.solve(MATRIX, x[..., None])),
    "inverse": lambda x: squares(torch.linalg.inv(own(x))),
    "slogdet": lambda x: torch.linalg.slogdet(own(x))[1],
    "logdet": lambda x: torch.logdet(positive(x)),
}


@some_at_a_time(ENERGIES, 4)
def test_matrices(names):
    energy = added_up(ENERGIES, names)
    sde = Langevin(FunctionPotential(lambda x: 0.1 * energy(x) + 2.0 * x.square().sum(-1), SIZE))
    for particles in (ONE_BY_ONE, SIDE_BY_SIDE):
        assert_same(*both(sde, 0.3 * start(particles, SIZE), "em", step_size=1e-3))


def test_a_matrix_without_a_factor_ends_the_run_with_torchs_own_error():
    """Compiled, its factor is NaN; eagerly the same step says why."""

    def energy(x):
        return torch.linalg.cholesky(torch.diag_embed(x)).sum((-1, -2))

    sde = Langevin(FunctionPotential(energy, 2))
    x0 = torch.full((SIDE_BY_SIDE, 2), 1e-3, dtype=torch.float64)
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        sample(sde, x0, integrator="em", step_size=1e-4, num_steps=50, seed=0, compile=True)


def test_a_parameter_that_loses_its_factor_between_runs_is_torchs_own_error():
    """The matrix is torch's to factor before the run, with its check."""
    matrix = torch.eye(2, dtype=torch.float64)

    def energy(x):
        return 0.5 * torch.linalg.solve_triangular(torch.linalg.cholesky(matrix), x.mT, upper=False).square().sum(0)

    sde, x0 = Langevin(FunctionPotential(energy, 2)), start(SIDE_BY_SIDE, 2)
    run = {"integrator": "em", "step_size": 1e-3, "num_steps": 5, "seed": 0}
    for _ in range(2):  # the second run is not checked from the start
        sample(sde, x0, compile=True, **run)
    matrix[1, 1] = -1.0
    for compiling in (False, True):
        with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
            sample(sde, x0, compile=compiling, **run)


def indefinite(x):
    """A matrix that has a factor for some particles, and no line of one, or only some, for others."""
    return torch.diag_embed(0.4 + x) + 0.3


def without_pivots(x):
    """A matrix with zeros in the place of pivots for some particles."""
    return torch.diag_embed(x.relu()) + torch.triu(torch.ones(SIZE, SIZE, dtype=x.dtype), 1)


def guarded(x):
    factor, info = torch.linalg.cholesky_ex(indefinite(x))
    return torch.where(info == 0, squares(factor.cos()), x.square().sum(-1))


GUARDED = {
    "a factor": guarded,
    "the line without": lambda x: x.sin().sum(-1) * torch.linalg.cholesky_ex(indefinite(x)).info.to(x.dtype),
    "an upper factor": lambda x: torch.where(
        torch.linalg.cholesky_ex(indefinite(x), upper=True)[1] > 0, x.sin().sum(-1), x.cos().sum(-1)
    ),
    "an inverse": lambda x: x.sin().sum(-1) * torch.linalg.inv_ex(without_pivots(x))[1],
    "a solution": lambda x: x.sin().sum(-1) * torch.linalg.solve_ex(without_pivots(x), x.unsqueeze(-1)).info,
}


@pytest.mark.parametrize("name", GUARDED)
def test_a_step_may_ask_which_matrices_have_a_factor(name):
    energy = GUARDED[name]
    sde = Langevin(FunctionPotential(lambda x: 0.1 * energy(x) + 2.0 * x.square().sum(-1), SIZE))
    for particles in (ONE_BY_ONE, SIDE_BY_SIDE):
        x0 = 0.5 * start(particles, SIZE)
        lines = torch.linalg.cholesky_ex(indefinite(x0)).info
        assert particles == ONE_BY_ONE or len(lines.unique()) > 2
        eager, compiled = both(sde, x0, "em", step_size=1e-3)
        assert eager.isfinite().all()
        assert_same(eager, compiled)
