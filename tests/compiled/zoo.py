"""Energies and coefficients as users write them, for the compiler to take."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, distributions, nn

DIM = 3
_CENTRES = torch.tensor([[1.0, 0.0, -1.0], [-1.0, 0.5, 0.0], [0.0, -0.5, 1.0], [0.3, 0.2, 0.1]], dtype=torch.float64)
_MATRIX = torch.tensor([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]], dtype=torch.float64)


def _like(tensor: Tensor, x: Tensor) -> Tensor:
    return tensor.to(x.dtype)


def rosenbrock(x: Tensor) -> Tensor:
    a, b = x[..., :-1], x[..., 1:]
    return (2.0 * (b - a**2) ** 2 + (1 - a) ** 2).sum(-1)


def funnel(x: Tensor) -> Tensor:
    width, rest = x[..., 0], x[..., 1:]
    rest_log_prob = distributions.Normal(0.0, torch.exp(0.25 * width).unsqueeze(-1)).log_prob(rest).sum(-1)
    return 0.5 * width.square() - rest_log_prob


def banana(x: Tensor) -> Tensor:
    u, v, w = x.unbind(-1)
    return 0.5 * (u.pow(2) + (v - 0.5 * u * u).pow(2) + w.abs().pow(1.5))


def mixture_by_logsumexp(x: Tensor) -> Tensor:
    squares = (x.unsqueeze(-2) - _like(_CENTRES, x)).square().sum(-1)
    return -torch.logsumexp(-0.5 * squares, dim=-1)


def student(x: Tensor) -> Tensor:
    return -distributions.StudentT(4.0).log_prob(x).sum(-1)


def normal_by_cholesky(x: Tensor) -> Tensor:
    covariance = _like(_MATRIX, x)
    normal = distributions.MultivariateNormal(torch.zeros(DIM, dtype=x.dtype), covariance)
    return -normal.log_prob(x)


def quadratic_by_einsum(x: Tensor) -> Tensor:
    return 0.5 * torch.einsum("...i,ij,...j->...", x, _like(_MATRIX, x), x)


def norms(x: Tensor) -> Tensor:
    return x.norm(dim=-1) + 0.1 * x.norm(p=1, dim=-1) + torch.linalg.vector_norm(x, ord=4, dim=-1)


def trigonometric(x: Tensor) -> Tensor:
    return (0.5 * x.square() + x.sin() * torch.cos(2 * x) + torch.atan(x) + torch.cosh(0.1 * x)).sum(-1)


def clamps(x: Tensor) -> Tensor:
    bent = F.relu(x) + 0.5 * F.leaky_relu(-x, 0.1) + F.elu(x) + x.clamp(-1, 1) + torch.where(x > 0.2, x, -x)
    return 0.5 * x.square().sum(-1) + 0.1 * bent.square().sum(-1) + torch.maximum(x[..., 0], x[..., 1])


def softmaxes(x: Tensor) -> Tensor:
    weights = torch.softmax(x, dim=-1)
    return 0.5 * x.square().sum(-1) - (weights * F.log_softmax(2 * x, dim=-1)).sum(-1)


def joined(x: Tensor) -> Tensor:
    y = torch.cat((x, x.flip(-1) ** 2, torch.stack((x[..., 0], x[..., 2]), dim=-1)), dim=-1)
    first, second = y.split((5, 3), dim=-1)
    return 0.1 * first.square().sum(-1) + second.mean(-1) + 0.5 * x.square().sum(-1)


def indexed(x: Tensor) -> Tensor:
    picked = x[..., [2, 0, 2]] * x.index_select(-1, torch.tensor([1, 1, 0]))
    places = torch.tensor([0, 2]).expand(*x.shape[:-1], 2)
    outer = (x.unsqueeze(-1) * x.unsqueeze(-2)).diagonal(1, -2, -1)
    return 0.5 * x.square().sum(-1) + picked.sin().sum(-1) + x.gather(-1, places).cos().sum(-1) + outer.sin().sum(-1)


def statistics(x: Tensor) -> Tensor:
    return 0.5 * x.square().sum(-1) + x.var(-1) + x.std(-1) + x.amax(-1) - 0.5 * x.mean(-1)


def special(x: Tensor) -> Tensor:
    return 0.5 * x.square().sum(-1) - torch.erf(x).sum(-1) - F.logsigmoid(x).sum(-1) + torch.expm1(-0.1 * x).sum(-1)


def gaussian_process(x: Tensor) -> Tensor:
    """Length, height and noise of a process seen at five times."""
    times = torch.linspace(-1.0, 1.0, 5, dtype=x.dtype)
    length, height, noise = (2.0 * x).exp()[..., None, None].unbind(-3)
    kernel = height * torch.exp(-0.5 * (times[:, None] - times).square() / length)
    factor = torch.linalg.cholesky(kernel + (noise + 1e-2) * torch.eye(5, dtype=x.dtype))
    inner = torch.linalg.solve_triangular(factor, times.sin()[:, None].expand(*x.shape[:-1], 5, 1), upper=False)
    outer = torch.cholesky_solve(times.cos()[:, None].expand(*x.shape[:-1], 5, 1), factor)
    log_determinant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return 0.5 * inner.square().sum((-1, -2)) + log_determinant + 0.01 * outer.sum((-1, -2)) + 0.5 * x.square().sum(-1)


def learned_covariance(x: Tensor) -> Tensor:
    zero = torch.zeros_like(x[..., 0])
    first, second = (0.3 * x[..., 0]).exp(), (0.3 * x[..., 2]).exp()
    rows = torch.stack((first, zero), -1), torch.stack((x[..., 1], second), -1)
    scale = torch.stack(rows, -2)
    data = torch.tensor([0.3, -0.4], dtype=x.dtype)
    by_scale = distributions.MultivariateNormal(torch.zeros_like(data), scale_tril=scale).log_prob(data)
    precision = scale @ scale.mT + 0.1 * torch.eye(2, dtype=x.dtype)
    by_precision = distributions.MultivariateNormal(torch.zeros_like(data), precision_matrix=precision).log_prob(data)
    return 0.5 * x.square().sum(-1) - by_scale - by_precision


def running(x: Tensor) -> Tensor:
    walk, growth = x.cumsum(-1), (1.0 + 0.1 * x.square()).prod(-1)
    return 0.5 * walk.square().sum(-1) + growth + 0.1 * torch.logcumsumexp(x, -1).sum(-1) + 0.1 * x.square().sum(-1)


def ordered(x: Tensor) -> Tensor:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=x.dtype)
    in_order = (x.sort(-1).values * weights).square().sum(-1) + (x.sort(-1, descending=True).values * weights).sum(-1)
    extremes = x.max(-1).values.square() + x.min(-1, keepdim=True).values.squeeze(-1).sin()
    chosen = x.gather(-1, x.cos().argmax(-1, keepdim=True)).squeeze(-1)
    return in_order + extremes + chosen.square() + x.median(-1).values.square() + x.topk(2, -1).values.prod(-1)


def counts(x: Tensor) -> Tensor:
    """Functions of gamma and of the normal law, with their derivatives."""
    a, b, c = x.exp().unbind(-1)
    gamma = distributions.Gamma(a, b).log_prob(torch.tensor(1.3, dtype=x.dtype))
    binomial = distributions.NegativeBinomial(c, logits=x[..., 0]).log_prob(torch.tensor(4.0, dtype=x.dtype))
    probit = torch.special.log_ndtr(x).sum(-1) + torch.erfinv(0.9 * torch.tanh(x)).sum(-1)
    return 0.5 * x.square().sum(-1) - gamma - binomial - 0.1 * probit


def in_buckets(x: Tensor) -> Tensor:
    bounds, table = torch.tensor([-1.0, 0.0, 0.5], dtype=x.dtype), torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype)
    weights = table[torch.bucketize(x, bounds)] + torch.searchsorted(bounds, x, right=True).to(x.dtype)
    so_far = x.cummax(-1).values.square() + x.cummin(-1).values.sin()
    return (weights * x.square() + so_far + x.long().to(x.dtype) * x).sum(-1)


def framed(x: Tensor) -> Tensor:
    wide, narrow = F.pad(x, (1, 2), value=0.3), F.pad(x, (-1, 1))
    plane = F.pad(x[..., None, :], (1, 0, 1, 1))
    return wide.square().sum(-1) + narrow.sin().sum(-1) + plane.cos().sum((-1, -2))


def signs(x: Tensor) -> Tensor:
    turned = x.flip(-1)
    least = torch.fmin(x, turned).square() + torch.fmax(x, 0.5 * turned)
    signed = torch.copysign(x.square(), turned) + torch.signbit(x).to(x.dtype) * x
    whole = torch.div(x, 0.2, rounding_mode="trunc") * x + torch.round(x, decimals=1) * x
    return (least + signed + 0.1 * whole + x.square()).sum(-1) - distributions.Gamma(x[..., 0].exp(), 1.0).entropy()


class Network(nn.Module):
    """A network energy."""

    def __init__(self, *activations: nn.Module) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = DIM
        for activation in activations:
            layers += [nn.Linear(width, 17), activation]
            width = 17
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).squeeze(-1) + 0.5 * x.square().sum(-1)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: function
    for function in (
        *(rosenbrock, funnel, banana, mixture_by_logsumexp, student, normal_by_cholesky, quadratic_by_einsum, norms),
        *(trigonometric, clamps, softmaxes, joined, indexed, statistics, special),
        *(gaussian_process, learned_covariance, running, ordered, counts, in_buckets, framed, signs),
    )
}


def networks() -> dict[str, Network]:
    """Networks with usual activations, the same at every call."""
    torch.manual_seed(0)
    return {
        "tanh": Network(nn.Tanh(), nn.Tanh()),
        "silu": Network(nn.SiLU(), nn.Softplus()),
        "gelu": Network(nn.GELU(), nn.GELU(approximate="tanh")),
        "relu": Network(nn.ReLU(), nn.Sigmoid()),
        "norm": Network(nn.Sequential(nn.LayerNorm(17), nn.ELU()), nn.Mish()),
    }
