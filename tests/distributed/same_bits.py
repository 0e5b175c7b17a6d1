"""What ranks do to particles, beside one process that has them all."""

from __future__ import annotations

import time
from itertools import cycle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import torchsrk
from torchsrk import ItoDiffusion, Langevin, NonFiniteStateError, sample
from torchsrk.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from torchsrk.distributed import (
    RankError,
    chunk,
    covariance,
    fisher_metric,
    gather,
    load_sharded,
    mean,
    nested_rhat,
    own_rows,
    quantiles,
    sample_resumable,
    sample_tuned,
    save_sharded,
    set_timeout,
    shard,
    shard_rows,
    variance,
)
from torchsrk.distributed.layout import Layout, local_of
from torchsrk.distributed.together import Together
from torchsrk.distributions import DiffusionDistribution
from torchsrk.metrics import corrected_wasserstein2_squared, energy_distance_squared, kernel_stein_discrepancy
from torchsrk.potentials import FunctionPotential, GaussianMixture, NonConvex
from torchsrk.tuning.ensemble import Ensemble
from torchsrk.tuning.metric import dense_metric, standardised

from .crew import Crew, main_of


def cloud(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


class Network(Langevin):
    """Matrix products, which round by how many rows they have."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 17), torch.nn.Tanh(), torch.nn.Linear(17, 1)).requires_grad_(False)
        super().__init__(FunctionPotential(lambda x: 0.5 * x.square().sum(-1) + net(x).squeeze(-1), dim=3))


def problems() -> list[tuple[str, Any]]:
    mixture, wells = Langevin(GaussianMixture(shift=torch.full((3,), 0.3))), NonConvex(beta=2.0, gamma=0.5, dim=3)
    with_levy_areas = ItoDiffusion(wells, diffusion=wells.scale, noise_type="isotropic")
    return [("em", mixture), ("srk-ld", mixture), ("mala", mixture), ("srk-id", with_levy_areas), ("srk-ld", Network())]


def assert_same(many: torchsrk.Run, one: torchsrk.Run) -> None:
    for name in ("final", "trajectory", "state"):
        assert torch.equal(gather(getattr(many, name)), getattr(one, name)), name
    assert (many.step, many.statistics) == (one.step, one.statistics)


def states_and_trajectories(crew: Crew) -> None:
    """Uneven, with ranks of few rows and of none, in one block or several.

    Rows are shared out alike for all schemes: the first goes through every group, others through one of several ranks.
    Every form takes a second to compile: the first has both, others are compiled or not by turns.
    """
    turns, ways = cycle((2, 3, 4)), cycle((True, False, False))
    for rows, block_size in ((37, None), (37, 5), (9, 4), (3, 2), (1, None)):
        x = cloud(rows, 3)
        for integrator, sde in problems():
            for compiled in (
                (False, True)
                if integrator == "em" and rows > 4
                else (next(ways) and rows > 4 and not isinstance(sde, Network),)
            ):
                groups = range(1, crew.size + 1) if integrator == "em" and not compiled else (next(turns),)
                meshes = [crew.meshes[count] for count in groups if count in crew.meshes]
                options: dict[str, Any] = {"integrator": integrator, "step_size": 0.05, "num_steps": 8, "burn_in": 2}
                options |= {"thin": 3, "seed": 4, "block_size": block_size, "compile": compiled}
                one = crew.in_turn(lambda: sample(sde, x, **options) if meshes else None)  # noqa: B023
                for mesh in meshes:
                    assert_same(sample(sde, shard(x, mesh), **options), one)


def going_on(crew: Crew) -> None:
    """From a state, at a later step and particle, with rows of several particles, and callbacks of shards."""
    (_, mixture), x = problems()[0], cloud(11, 2, 3, dtype=torch.float64)
    mixture = Langevin(GaussianMixture(shift=torch.full((3,), 0.3, dtype=torch.float64)))
    options: dict[str, Any] = {"integrator": "mala", "step_size": 0.1, "seed": 2, "block_size": 4, "first_particle": 5}
    whole = sample(mixture, x, num_steps=9, thin=1, **options)
    assert whole.trajectory is not None
    for mesh in crew.meshes.values():
        seen: list[Tensor] = []
        first = sample(mixture, shard(x, mesh), num_steps=5, **options)
        callbacks = [lambda step, x: seen.append(gather(x))]  # noqa: B023
        options_then: dict[str, Any] = {"state": first.state, "first_step": first.step, "callbacks": callbacks}
        last = sample(mixture, first.final, num_steps=4, **options, **options_then)
        assert torch.equal(gather(last.state), whole.state)
        assert torch.equal(torch.stack(seen), whole.trajectory[5:])


def own_rows_alone(crew: Crew) -> None:
    """Aligned rows run by themselves, without a DTensor."""
    x = cloud(45, 3)
    for compiled in (False, True):
        options: dict[str, Any] = {"integrator": "srk-ld", "step_size": 0.1, "num_steps": 5, "seed": 0}
        options |= {"compile": compiled, "block_size": 4}
        sde = problems()[1][1] if compiled else Network()
        whole = crew.in_turn(lambda: sample(sde, x, **options).final)  # noqa: B023
        for mesh in crew.meshes.values():
            rows = own_rows(x.shape, block_size=4, compile=compiled, group=mesh.get_group())
            if len(rows):
                part = sample(sde, x[rows.start : rows.stop], first_particle=rows.start, **options)
                assert torch.equal(part.final, whole[rows.start : rows.stop])


def statistics(crew: Crew) -> None:
    """Bits of one process, whose numbers are torch's to rounding."""
    x, theta = cloud(20_001, 3), cloud(6, 9000, 2, dtype=torch.float64)
    alone = [mean(x), covariance(x), variance(x), quantiles(x, [0.0, 0.05, 0.5, 1.0]), mean(theta)]
    alone += [nested_rhat(theta), nested_rhat(theta, 6)]
    plain = [x.double().mean(0), x.double().T.cov(), x.double().var(0)]
    plain += [x.quantile(torch.tensor([0.0, 0.05, 0.5, 1.0]), 0), theta.mean(1)]
    plain += [torchsrk.diagnostics.rhat.nested_rhat(theta, groups) for groups in (None, 6)]
    for ours, theirs in zip(alone, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    for mesh in crew.meshes.values():
        y, rows = shard(x, mesh), chunk(9000, mesh)
        particles = shard_rows(theta.movedim(1, 0)[rows.start : rows.stop], 9000, mesh).movedim(0, 1)
        many = [mean(y), covariance(y), variance(y), quantiles(y, [0.0, 0.05, 0.5, 1.0]), mean(particles)]
        many += [nested_rhat(particles), nested_rhat(particles, 6)]
        for ours, theirs in zip(many, alone, strict=True):
            assert torch.equal(ours, theirs)


def metric(crew: Crew) -> None:
    """Of a Gaussian it is the covariance, wherever particles are; else what tuning makes of one process's particles."""
    mix = torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [-1.0, 0.3, 0.4]], dtype=torch.float64)
    x = 3.0 * cloud(9001, 3, dtype=torch.float64) + 1.0
    gradient = torch.linalg.solve(mix @ mix.T, x.T).T
    found = fisher_metric(x, gradient)
    torch.testing.assert_close(
        found.scale.times(found.scale.transposed(torch.eye(3).double())), mix @ mix.T, rtol=1e-8, atol=0
    )
    torch.testing.assert_close(found.loc, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-8)
    bent = gradient + 0.1 * gradient.pow(3)
    alone = fisher_metric(x, bent)
    whole = dense_metric(standardised(Ensemble(x, bent[:, 0], bent)))
    torch.testing.assert_close(alone.outward(x), whole.outward(x), rtol=1e-9, atol=1e-9)
    for mesh in crew.meshes.values():
        many = fisher_metric(shard(x, mesh), shard(bent, mesh))
        assert torch.equal(many.loc, alone.loc)
        assert torch.equal(many.outward(x), alone.outward(x))


def gathered(crew: Crew) -> None:
    x = cloud(10, 3)
    for count, mesh in crew.meshes.items():
        assert torch.equal(gather(shard(x, mesh)), x)
        found = gather(shard(x, mesh), to=count - 1)
        assert (found is not None) is (crew.rank == count - 1)
        assert found is None or torch.equal(found, x)


def an_error_ends_all(crew: Crew) -> None:
    """One particle leaves every bound: its rank says so, and the others say that it did, long before their end."""
    mesh, x = crew.new_mesh(), torch.zeros(4 * crew.size, 1)
    x[4] = 10.0  # beyond the barriers at -5 and 5, which are 156 high: those at 0 stay, however long they have to wait
    sde = Langevin(FunctionPotential(lambda x: (12.5 * x.pow(2) - 0.25 * x.pow(4)).sum(-1), dim=1))
    start = time.monotonic()
    with pytest.raises((NonFiniteStateError, RankError)) as caught:
        sample(sde, shard(x, mesh), integrator="em", step_size=1e-3, num_steps=10**8, seed=0, block_size=1)
    error = caught.value
    if isinstance(error, NonFiniteStateError):
        assert crew.rank == 1
        assert error.last_finite.shape == (4, 1)
    else:
        assert error.rank == 1 != crew.rank
        assert "NonFiniteStateError" in str(error)
    assert time.monotonic() - start < 60.0  # where 10⁸ steps take hours
    with pytest.raises(RankError, match="out of step"):
        gather(shard(x, mesh))


def who_does_not_come(crew: Crew) -> None:
    """A rank that waits too long says for what, and for whom."""
    set_timeout(2.5)
    words = "s for a tensor, and rank 2 did not come"
    group = crew.new_mesh().get_group()
    if crew.rank == 2:
        time.sleep(5.0)
    with pytest.raises(RankError, match=words) as caught, Together(group, "a test") as ranks:
        ranks.gathered(torch.zeros(1), "a tensor")
    set_timeout(60.0)
    assert crew.rank != 2 or caught.value.rank in (0, 1, 3)  # who comes late learns that the others have given up


def checkpoints(crew: Crew) -> None:
    """Written by any number of ranks, read by any other; refused when a byte of it is another one."""
    x, trajectory = cloud(13, 3), cloud(2, 13, 3, dtype=torch.float64)
    for rows in (13, 2):
        for saving, mesh in crew.meshes.items():
            parts = {"x": shard(x[:rows], mesh)}
            whole = shard(trajectory.movedim(1, 0)[:rows], mesh)
            parts["trajectory"] = Layout.of(whole).sharded(local_of(whole).movedim(0, 1), dim=1)
            folder = crew.folder / f"saved-{rows}-{saving}"
            for step in (1, 2):  # the second replaces the first
                save_sharded(folder, {**parts, "step": step, "more": {"names": ["a", None], "rate": 0.1}})
            assert len(list(folder.glob("data-*"))) == 1 or crew.rank
    dist.barrier()
    for rows in (13, 2):
        for saved in range(1, crew.size + 1):
            for mesh in crew.meshes.values():
                kept = load_sharded(crew.folder / f"saved-{rows}-{saved}", mesh)
                assert torch.equal(gather(kept["x"]), x[:rows])
                assert torch.equal(gather(kept["trajectory"]), trajectory[:, :rows])
                assert (kept["step"], kept["more"]) == (2, {"names": ["a", None], "rate": 0.1})
    folder = crew.folder / "saved-13-4"
    if crew.rank == 0:
        file = next(folder.glob("data-*/*.safetensors"))
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    dist.barrier()
    with pytest.raises(CheckpointError, match="not what was written"):
        load_sharded(folder, crew.new_mesh())
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load_sharded(crew.folder / "nothing", crew.new_mesh())


def resumed(crew: Crew) -> None:
    """A run in pieces, gone on with by fewer ranks, ends as one without a stop."""
    sde, x = problems()[2][1], cloud(13, 3)
    options: dict[str, Any] = {"integrator": "mala", "step_size": 0.1, "seed": 3}
    one = sample(sde, x, num_steps=60, **options)
    folder = crew.folder / "resumed"
    for steps, count in ((25, 4), (45, 2), (50, 3), (60, 1)):
        if count in crew.meshes:
            run = sample_resumable(
                sde, shard(x, crew.meshes[count]), folder=folder, num_steps=steps, every=0.01, **options
            )
            assert run.step == steps
        dist.barrier()
    for mesh in crew.meshes.values():
        run = sample_resumable(sde, shard(x, mesh), folder=folder, num_steps=60, **options)
        assert torch.equal(gather(run.state), one.state)
        assert run.statistics == one.statistics
    with pytest.raises(CheckpointError, match="holds another run"):
        sample_resumable(sde, shard(x, crew.new_mesh()), folder=folder, num_steps=60, **{**options, "seed": 4})


def training(crew: Crew) -> None:
    """DDP around a model that holds an SDE: the gradients of one process with the whole batch."""
    from torch.nn.parallel import DistributedDataParallel

    from scripts.train_ddp import Generator, loss_of

    torch.manual_seed(0)
    model, x0, wanted = (
        Generator(3).double(),
        cloud(13, 3, dtype=torch.float64),
        cloud(13, 3, dtype=torch.float64).sin(),
    )
    loss_of(model, x0, wanted, 5, range(13)).backward()
    plain = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    assert len(plain) == 5
    for count in (2, 4):
        if count in crew.meshes:
            mesh = crew.meshes[count]
            model.zero_grad()
            shared = DistributedDataParallel(model, process_group=mesh.get_group())
            loss_of(shared, x0, wanted, 5, chunk(13, mesh), count).backward()
            for parameter, expected in zip(model.parameters(), plain, strict=True):
                torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=1e-14)


def distances(crew: Crew) -> None:
    """Over tiles and repeats that ranks share out: the bits of one process."""
    x, y = cloud(1500, 3), cloud(1030, 3) + 0.3
    repeats: dict[str, Any] = {"repeats": 3, "subsample": 30, "seed": 1}
    one = [energy_distance_squared(x, y), kernel_stein_discrepancy(x, lambda x: -x)]
    exact = corrected_wasserstein2_squared(x, x + 0.1, y, y + 0.1, **repeats)
    for mesh in crew.meshes.values():
        a, b, a2, b2 = (shard(part, mesh) for part in (x, y, x + 0.1, y + 0.1))
        many = [energy_distance_squared(a, b), kernel_stein_discrepancy(a, lambda x: -x)]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(many, one, strict=True))
        assert torch.equal(energy_distance_squared(a, y), one[0])
        assert corrected_wasserstein2_squared(a, a2, b, b2, **repeats) == exact


def draws(crew: Crew) -> None:
    """Of a distribution, on a constrained space, and of a plan that one rank has tuned for all."""
    gamma = torch.distributions.Gamma(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    options: dict[str, Any] = {"step_size": 0.1, "num_steps": 8, "seed": 7}
    starts = torch.distributions.Exponential(torch.ones(2))
    target, file = GaussianMixture(shift=torch.full((2,), 0.3)), crew.folder / "plan.safetensors"
    if crew.rank == 0:
        save_checkpoint(file, torchsrk.tune(target, particles=64, seed=0).state_dict())
    dist.barrier()
    plan = torchsrk.Tuning.restored(target, load_checkpoint(file), "baoab")
    after = plan.sample(2)
    for initial in (None, starts):
        one = DiffusionDistribution(gamma, initial=initial, **options)
        first, second = one.sample((23,)), one.sample((5,))
        for mesh in crew.meshes.values():
            many = DiffusionDistribution(gamma, initial=initial, mesh=mesh, **options)
            assert torch.equal(gather(many.sample((23,))), first)
            assert torch.equal(gather(many.sample((5,))), second)
    for mesh in crew.meshes.values():
        run = sample_tuned(plan, mesh, 2)
        assert torch.equal(gather(run.trajectory), after.trajectory)
        assert torch.equal(gather(sample_tuned(plan, mesh, after=run).final), plan.sample(after=after).final)


def bad_input(crew: Crew) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh, (_, sde) = crew.meshes[crew.size], problems()[0]
    options: dict[str, Any] = {"integrator": "em", "step_size": 0.1, "num_steps": 1, "seed": 0}
    x = cloud(8, 3)
    for placement, words in ((Replicate(), "sharded"), (Shard(1), "by its rows")):
        wrong = distribute_tensor(x, mesh, [placement])
        with pytest.raises(ValueError, match=words):
            sample(sde, wrong, **options)
    with pytest.raises((ValueError, RankError), match="different: seed"):
        sample(sde, shard(x, crew.new_mesh()), **{**options, "seed": crew.rank // 2})


if __name__ == "__main__":
    main_of(
        [
            *(
                states_and_trajectories,
                going_on,
                own_rows_alone,
                statistics,
                metric,
                gathered,
                an_error_ends_all,
                bad_input,
            ),
            *(checkpoints, resumed, training, distances, draws, who_does_not_come),
        ]
    )
