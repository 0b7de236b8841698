"""How good are the predictions? From top-k arrays and a sparse truth, without ever forming an n×L array.

Every `*_at_k(Y, top, ..., k=None)` returns the whole curve, an array whose entry j is the metric at j + 1, for 1 to k
(all columns of `top` when k is None). `evaluate` puts all of them into one table, overall and by label frequency.

`Y` is a SciPy sparse matrix or array (n, L), where 1 marks a true label, or a 1-d array of class ids.
`top` is a `TopK`, or just its label ids: an (n, k) array, best first, or a 1-d array for k = 1.
"""

from longtail.metrics.evaluation import Evaluation, evaluate
from longtail.metrics.multiclass import accuracy, macro_f1
from longtail.metrics.propensity import PROPENSITY_PRESETS, inverse_propensity, psndcg_at_k, psp_at_k
from longtail.metrics.ranking import coverage_at_k, ndcg_at_k, precision_at_k, recall_at_k

__all__ = [
    "PROPENSITY_PRESETS",
    "Evaluation",
    "accuracy",
    "coverage_at_k",
    "evaluate",
    "inverse_propensity",
    "macro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
]
