"""Second moments that schemes for underdamped Langevin have at stationarity on f = λq²/2, from their formulas by hand.

A step is (q, v)' = A(q, v) + noise of covariance Q, so Σ = AΣAᵀ + Q; with a random time, the mean of that over τ.
"""

import numpy as np

B1 = 0.1931833275037836
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
TIMES, WEIGHTS = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


class Mode:
    """A curvature λ, a friction γ, an inverse mass u and a step h."""

    def __init__(self, curvature, friction, u, h):
        self.k, self.friction, self.u, self.h = u * curvature, friction, u, h

    def flow(self, t):
        """The free flow over t: its matrix and the covariance of its noise."""
        eta = np.exp(-self.friction * t)
        c = (1.0 - eta) / self.friction
        both = (1.0 - eta) ** 2 / self.friction
        position = 2.0 / self.friction * (t - 2.0 * c + (1.0 - eta**2) / (2.0 * self.friction))
        return np.array([[1.0, c], [0.0, eta]]), self.u * np.array([[position, both], [both, 1.0 - eta**2]])

    def kick(self, t):
        return np.array([[1.0, 0.0], [-t * self.k, 1.0]])

    def drift(self, t):
        return np.array([[1.0, t], [0.0, 1.0]])

    def friction_step(self, t):
        eta = np.exp(-self.friction * t)
        return np.diag([1.0, eta]), self.u * np.diag([0.0, 1.0 - eta**2])


def cheng(m):
    flow, noise = m.flow(m.h)
    c = flow[0, 1]
    return [(1.0, flow - m.k * np.array([[(m.h - c) / m.friction, 0.0], [c, 0.0]]), noise)]


def baoab(m):
    turn, noise = m.friction_step(m.h)
    half = m.drift(m.h / 2)
    return [(1.0, half @ turn @ half @ m.kick(m.h), half @ noise @ half.T)]


def obabo(m, stages=1):
    turn, noise = m.friction_step(m.h / 2)
    if stages == 1:
        middle = m.kick(m.h / 2) @ m.drift(m.h) @ m.kick(m.h / 2)
    else:
        outer, half = m.kick(B1 * m.h), m.drift(m.h / 2)
        middle = outer @ half @ m.kick((1.0 - 2.0 * B1) * m.h) @ half @ outer
    after = turn @ middle
    return [(1.0, after @ turn, after @ noise @ after.T + noise)]


def ubu(m, time=0.5, weight=1.0):
    (before, noise), (after, later) = m.flow(time * m.h), m.flow((1.0 - time) * m.h)
    moved = after @ m.kick(m.h)
    return [(weight, moved @ before, moved @ noise @ moved.T + later)]


def ubu_of_two_normals(m):
    """UBU without what the noise of the whole step leaves open of the position at its middle."""
    ((weight, step, noise),) = ubu(m)
    half, _ = m.flow(m.h / 2)
    column = m.h * m.k * half[:, 1:]
    return [(weight, step, noise - open_in_the_middle(m) * (column @ column.T))]


def open_in_the_middle(m):
    """The variance of the free flow's position at h/2 given its end."""
    half, noise = m.flow(m.h / 2)
    whole = half @ noise @ half.T + noise
    shared = half @ noise[:, :1]
    return float((noise[0, 0] - shared.T @ np.linalg.solve(whole, shared)).item())


def randomized_ubu(m):
    return [part for time, weight in zip(TIMES, WEIGHTS, strict=True) for part in ubu(m, time, weight)]


def randomized_midpoint(m):
    parts = []
    flow, _ = m.flow(m.h)
    for time, weight in zip(TIMES, WEIGHTS, strict=True):
        (before, noise), (after, later) = m.flow(time * m.h), m.flow((1.0 - time) * m.h)
        c = before[0, 1]
        seen = np.array([[1.0 - m.k * (time * m.h - c) / m.friction, c]])
        column = m.h * m.k * after[:, 1:]
        # Noise up to τh goes through the rest of the flow, and less the kick that its position makes.
        early = after - column @ np.array([[1.0, 0.0]])
        parts.append((weight, flow - column @ seen, early @ noise @ early.T + later))
    return parts


def quicsort(m):
    """Rows are multiples of (q, v, W, H, K)."""
    x, v, W, H, K = np.eye(5)
    h, friction, rho = m.h, m.friction, np.sqrt(2.0 * m.friction * m.u)
    left, right = 0.5 - 3**0.5 / 6, 0.5 + 3**0.5 / 6

    def a(s):
        return (1.0 - np.exp(-friction * h * s)) / friction

    def b(s):
        return (np.exp(-friction * h * s) + friction * h * s - 1.0) / (friction**2 * h)

    moving, w = v + rho * (H + 6.0 * K), rho * (W - 12.0 * K)
    f1 = h * m.k * (x + a(left) * moving + b(left) * w)
    f2 = h * m.k * (x + a(right) * moving + b(right) * w - a(1 / 3) * f1)
    x_new = x + a(1) * moving + b(1) * w - 0.5 * (a(right) * f1 + a(left) * f2)
    v_new = np.exp(-friction * h) * moving + a(1) / h * w - rho * (H - 6.0 * K)
    v_new = v_new - 0.5 * (np.exp(-friction * h * right) * f1 + np.exp(-friction * h * left) * f2)
    rows = np.stack((x_new, v_new))
    noise = rows[:, 2:] @ np.diag([h, h / 12, h / 720]) @ rows[:, 2:].T
    return [(1.0, rows[:, :2], noise)]


def stationary(parts):
    """Σ of Σ = mean of AΣAᵀ + Q."""
    step = sum(weight * np.kron(A, A) for weight, A, _ in parts)
    noise = sum(weight * Q for weight, _, Q in parts)
    assert np.abs(np.linalg.eigvals(step)).max() < 1.0, "there is no law at this step"
    return np.linalg.solve(np.eye(4) - step, noise.reshape(4)).reshape(2, 2)
