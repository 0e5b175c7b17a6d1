"""Particles on more than one process: torchrun starts them, DTensors hold them, and all numbers are those of one.

Nothing here is imported with torchsrk itself.
"""

from .checkpoint import has_checkpoint, load_sharded, save_sharded
from .draws import sample_tuned
from .exchange import gather
from .layout import own_rows
from .metric import fisher_metric
from .resumable import sample_resumable
from .starting import chunk, shard, shard_rows, start
from .statistics import covariance, mean, nested_rhat, quantiles, variance
from .together import RankError, set_timeout

__all__ = [
    "RankError",
    "chunk",
    "covariance",
    "fisher_metric",
    "gather",
    "has_checkpoint",
    "load_sharded",
    "mean",
    "nested_rhat",
    "own_rows",
    "quantiles",
    "sample_resumable",
    "sample_tuned",
    "save_sharded",
    "set_timeout",
    "shard",
    "shard_rows",
    "start",
    "variance",
]
