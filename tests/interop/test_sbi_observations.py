"""Which observation a posterior of sbi answers for, by potentials that stand in for sbi's."""

import torch
from torch.distributions import Independent, Normal
from torch.distributions.transforms import AffineTransform

from torchsrk.interop import SbiPosterior, sbi_posteriors
from torchsrk.tuning import chains

OURS, OTHER = torch.zeros(1, 2), torch.full((1, 2), 5.0)
GIVEN = {"step_size": 0.1, "num_steps": 40}


class StandIn:
    """x ~ N(theta, 1) under a flat prior, with the methods of sbi's potentials that are called."""

    def __init__(self, x_o, network=None):
        self._x_o, self.network = x_o, network

    def return_x_o(self):
        return self._x_o

    def set_x(self, x_o, x_is_iid=True):
        self._x_o = torch.atleast_2d(x_o)

    def __call__(self, theta, track_gradients=True):
        shift = 0.0 if self.network is None else self.network(torch.zeros(2))
        with torch.set_grad_enabled(track_gradients):
            return -0.5 * (theta - shift - self._x_o).square().sum(-1)


class Around(StandIn):
    """One whose observation is held by another, as sbi's conditioned potentials have it."""

    def __init__(self, within):
        super().__init__(None)
        self.within = [within]

    def return_x_o(self):
        return self.within[0].return_x_o()

    def set_x(self, x_o, x_is_iid=True):
        self.within[0].set_x(x_o)

    def __call__(self, theta, track_gradients=True):
        return self.within[0](theta, track_gradients)


class InAModule(torch.nn.Module, StandIn):
    """One that is a module, with its observation as a buffer."""

    def __init__(self, x_o):
        torch.nn.Module.__init__(self)
        self.register_buffer("_x_o", x_o)
        self.network = None

    forward = StandIn.__call__
    __call__ = torch.nn.Module.__call__


def made(potential=None, **options):
    prior = Independent(Normal(torch.zeros(2), 10.0), 1)
    potential = StandIn(OURS.clone()) if potential is None else potential
    return SbiPosterior(potential, prior, AffineTransform(0.0, 0.5), **({"seed": 0, "particles": 200} | options))


def check_mean(theta, x):
    assert ((theta.mean(0) - x).abs() < 5.0 / len(theta) ** 0.5 + 0.05).all(), theta.mean(0)


def test_the_default_observation_stays_that_of_the_start():
    for potential in (StandIn(OURS.clone()), Around(StandIn(OURS.clone())), InAModule(OURS.clone())):
        posterior, held = made(potential, **GIVEN), potential.return_x_o()
        check_mean(posterior.sample((500,), x=OTHER), OTHER)
        assert potential.return_x_o() is held
        assert held.equal(OURS)
        check_mean(posterior.sample((500,)), OURS)
        potential.set_x(OTHER)
        check_mean(posterior.sample((500,)), OURS)


def test_observations_do_not_share_what_they_are_set_in():
    """Densities that are held at the same time, each of its own observation."""
    for potential in (StandIn(OURS.clone()), Around(StandIn(OURS.clone())), InAModule(OURS.clone())):
        posterior = made(potential, **GIVEN)
        first, second = posterior.conditioned(OURS), posterior.conditioned(OTHER)
        check_mean(posterior.theta(first.sample((500,))), OURS)
        check_mean(posterior.theta(second.sample((500,))), OTHER)


def test_networks_are_shared():
    network = torch.nn.Linear(2, 2)
    posterior = made(StandIn(OURS.clone(), network), **GIVEN)
    with torch.no_grad():
        network.bias.fill_(3.0)
    check_mean(posterior.sample((500,)), OURS + 3.0)


def test_an_observation_is_tuned_once_and_its_draws_go_on(monkeypatch):
    tuned, tune = [], chains.tune

    def noted(*args, **options):
        tuned.append(options["progress"])
        return tune(*args, **options)

    monkeypatch.setattr(chains, "tune", noted)
    posterior = made()
    first, second = (posterior.sample((20,)) for _ in range(2))
    assert not first.equal(second)
    assert tuned == [False]
    assert made().sample((20,)).equal(first)
    tuned.clear()
    rows = torch.cat([OURS, OTHER, OURS])
    theta = posterior.sample_batched((200,), rows)
    assert tuned == [False]  # the other one
    check_mean(theta[:, 0], OURS)
    check_mean(theta[:, 1], OTHER)
    assert not theta[:, 0].equal(theta[:, 2])
    posterior.sample((5,), x=OTHER[0])
    assert len(tuned) == 1


def test_what_is_diagnosed_are_the_chains_that_were_drawn_from():
    posterior = made(particles=500)
    posterior.sample((500,), x=OTHER)
    states = posterior.conditioned(OTHER).state_dict()["tuned"]["states"]
    text = str(posterior.diagnose(OTHER))
    assert posterior.conditioned(OTHER).state_dict()["tuned"]["states"] is states
    assert "500 particles" in text


def test_only_so_many_observations_are_kept(monkeypatch):
    monkeypatch.setattr(sbi_posteriors, "_MOST_KEPT", 2)
    posterior = made(**GIVEN)
    many = torch.arange(4.0).unsqueeze(-1).expand(4, 2)
    first = posterior.sample_batched((30,), many)
    assert posterior.conditioned(many[3]) is posterior.conditioned(many[3:])
    again = posterior.sample_batched((30,), many)
    assert not (first - again).abs().amin((0, 2)).lt(1e-6).any()  # no noise comes twice


def test_progress_bars_as_sbi_asks_for_them(capfd):
    posterior = made(**GIVEN)
    posterior.sample((10,), show_progress_bars=False)
    assert capfd.readouterr().err == ""
    posterior.sample((10,), show_progress_bars=True)
    posterior.sample_batched((10,), OTHER, show_progress_bars=True)
    assert "srk-ld" in capfd.readouterr().err
    posterior.sample((10,))
    assert capfd.readouterr().err == ""
