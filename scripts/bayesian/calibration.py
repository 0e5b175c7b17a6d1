"""How good predicted probabilities are: accuracy, likelihood and calibration, with standard errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchsrk.experiments import plots

BINS = 15


@dataclass(frozen=True)
class Prediction:
    """Scores on the test set, with standard errors over parts; the expected calibration error has 15 bins."""

    data: str
    method: str
    accuracy: float
    accuracy_error: float
    nll: float
    nll_error: float
    ece: float
    ece_error: float


@dataclass(frozen=True)
class Bin:
    """Of a reliability diagram; the error is the binomial one of the test points in it."""

    data: str
    method: str
    share: float
    confidence: float
    accuracy: float
    error: float


def accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    return (probabilities.argmax(-1) == labels).float().mean()


def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> Tensor:
    return -probabilities.gather(-1, labels.unsqueeze(-1)).log().mean()


def calibration(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(3, bins): the share of points whose highest probability is in a bin, its mean there, and how many are right."""
    confidence, guess = probabilities.max(-1)
    members = one_hot((confidence * BINS).long().clamp(max=BINS - 1), BINS).to(confidence)
    count = members.sum(0)
    means = torch.stack([confidence, (guess == labels).to(confidence)]) @ members / count.clamp(min=1)
    return torch.cat([count.unsqueeze(0) / len(labels), means])


def calibration_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    share, confidence, right = calibration(probabilities, labels)
    return (share * (confidence - right).abs()).sum()


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean of independent values and its standard error."""
    return float(values.mean()), float(values.std()) / math.sqrt(len(values))


def assess(data: str, method: str, parts: Tensor, labels: Tensor) -> Prediction:
    """The mean of the scores that each part of the probabilities, (parts, points, classes), has by itself."""
    metrics = (accuracy, negative_log_likelihood, calibration_error)
    scores = [mean_and_error(torch.stack([metric(part, labels) for part in parts])) for metric in metrics]
    return Prediction(data, method, *scores[0], *scores[1], *scores[2])


def reliability(data: str, method: str, parts: Tensor, labels: Tensor) -> list[Bin]:
    """Of each part by itself, counted together, where a bin has ten points or more."""
    rows = calibration(parts.flatten(0, 1), labels.repeat(len(parts))).T.tolist()
    return [
        Bin(data, method, share, confidence, right, math.sqrt(right * (1 - right) / (share * len(labels))))
        for share, confidence, right in rows
        if share * len(labels) >= 10
    ]


def print_predictions(rows: list[Prediction]) -> None:
    print("\nOn the test set (errors over networks, or over groups of them or of chains)")
    print(f"{'data':9} {'method':28} {'accuracy':>15} {'neg. log likelihood':>20} {'calibration error':>18}")
    for row in rows:
        scores = ((row.accuracy, row.accuracy_error), (row.nll, row.nll_error), (row.ece, row.ece_error))
        texts = [f"{value:.4f} ± {error:.4f}" for value, error in scores]
        print(f"{row.data:9} {row.method:28} {texts[0]:>15} {texts[1]:>20} {texts[2]:>18}")


def draw_reliability(bins: list[Bin], file: Any) -> None:
    """Accuracy against confidence, a panel a data set."""
    names = list(dict.fromkeys(row.data for row in bins))
    figure, axes = plots.panels(len(names), width=5.2, height=4.8)
    for axis, name in zip(axes, names, strict=True):
        own = [row for row in bins if row.data == name]
        for method in dict.fromkeys(row.method for row in own):
            some = [row for row in own if row.method == method]
            x, y, error = zip(*((row.confidence, row.accuracy, row.error) for row in some), strict=True)
            axis.errorbar(x, y, yerr=error, marker="o", capsize=3, label=method)
        low = min(min(row.confidence, row.accuracy - row.error) for row in own) - 0.03
        axis.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="calibrated")
        axis.set(xlim=(low, 1.02), ylim=(low, 1.02), xlabel="confidence", ylabel="accuracy", title=name)
        axis.legend(loc="lower right")
    figure.suptitle("Reliability on the test set (bars: 1 standard error)")
    plots.save(figure, file)
