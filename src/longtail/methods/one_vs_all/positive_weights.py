"""Weights of positives that depend on the frequency of the label: `positive_weight="auto"`.

    weight(n) = 3                            for n <= 5 rows with the label
                3 (1/3)^(log(n/5) / log 20)  between
                1                            for n >= 100 rows

Prediction compares the scores of labels that were trained separately. The many negatives keep the scores of a rare
label low, so its positives need more weight. A frequent label has enough positives; more weight would only let it fit
noise. The numbers were chosen on held-out rows (benchmarks/defaults.py), together with C=1/3.
"""

from __future__ import annotations

import numpy as np

RARE = 5
FREQUENT = 100
RARE_WEIGHT = 3.0


def by_frequency(counts: np.ndarray) -> np.ndarray:
    """Return the weight of the positives of every label, given the number of rows of every label."""
    n = np.clip(counts, RARE, FREQUENT)
    return np.asarray(RARE_WEIGHT ** (1 - np.log(n / RARE) / np.log(FREQUENT / RARE)))
