"""Metrics of top-k predictions against sparse true labels. They never need a dense n×L array.

`*_at_k(Y, top, k)` returns one number, the metric at k. `*_curve(Y, top, k=None)` returns the metric at 1, 2, ..., k as
an array (up to the width of `top` if k is None). `evaluate` puts all metrics into one table, overall and by label
frequency.

`Y` is a SciPy sparse matrix or array (n, L), where 1 marks a true label, or a 1-d array of class numbers.
`top` is a `TopK`, or just its column numbers: an (n, k) array, best first, or a 1-d array for k = 1.
"""

from longtail.metrics.decisions import Reliability, calibration_error, log_loss, reliability, set_metrics
from longtail.metrics.evaluation import Evaluation, evaluate
from longtail.metrics.labels import recall_of_labels
from longtail.metrics.multiclass import accuracy, macro_f1, maf1
from longtail.metrics.propensity import (
    PROPENSITY_PRESETS,
    inverse_propensity,
    psndcg_at_k,
    psndcg_curve,
    psp_at_k,
    psp_curve,
)
from longtail.metrics.ranking import (
    coverage_at_k,
    coverage_curve,
    ndcg_at_k,
    ndcg_curve,
    precision_at_k,
    precision_curve,
    recall_at_k,
    recall_curve,
)

__all__ = [
    "PROPENSITY_PRESETS",
    "Evaluation",
    "Reliability",
    "accuracy",
    "calibration_error",
    "coverage_at_k",
    "coverage_curve",
    "evaluate",
    "inverse_propensity",
    "log_loss",
    "macro_f1",
    "maf1",
    "ndcg_at_k",
    "ndcg_curve",
    "precision_at_k",
    "precision_curve",
    "psndcg_at_k",
    "psndcg_curve",
    "psp_at_k",
    "psp_curve",
    "recall_at_k",
    "recall_curve",
    "recall_of_labels",
    "reliability",
    "set_metrics",
]
