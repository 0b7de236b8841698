import numpy as np
import scipy.sparse as sp

from longtail.metrics import recall_of_labels


def test_recall_of_every_label():
    Y = sp.csr_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]]))
    top = np.array([[0, 2], [2, 3], [1, 0]])
    np.testing.assert_array_equal(recall_of_labels(Y, top), [2 / 3, 0.0, 1.0, np.nan])


def test_recall_by_the_definition():
    chance = np.random.default_rng(0)
    Y = sp.csr_array((chance.random((50, 20)) < 0.1).astype(int))
    top = np.array([chance.permutation(20)[:4] for _ in range(50)])
    dense = Y.toarray()
    for label, found in enumerate(recall_of_labels(Y, top)):
        rows = np.flatnonzero(dense[:, label])
        if len(rows):
            assert found == np.mean([label in top[i] for i in rows])
        else:
            assert np.isnan(found)
