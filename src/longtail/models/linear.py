"""A linear model: one weight row per label, sparse, or partly dense.

    score(x, label) = sum_j x_j W[label, j]  +  bias * W[label, n_features]

W has `n_features` columns. With `bias` > 0 it has one more, the last, for a constant feature that has the value `bias`
in every row. As in LIBLINEAR, the weight of this feature is regularised like every other one. The weights of some
features may be kept in a plain array, `dense`. W then has no entries in their columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
import scipy.sparse as sp

from longtail import memory
from longtail.errors import InputError
from longtail.hybrid import MIN_DENSITY, HybridRows, Rows
from longtail.matrix import canonical_csr
from longtail.models import plain
from longtail.models.base import Explanation, FeaturePipeline, Model
from longtail.models.calibrator import Calibrator
from longtail.models.dense import DenseWeights, HybridIndex
from longtail.models.index import FEATURE_BYTES, FeatureLists, InvertedIndex, canonical
from longtail.models.rules import Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

FLOAT32 = "float32"  # the form of the weights of a LinearModel


class LabelWeights(Model):
    """Base class of models with a weight row for each label: in one piece (LinearModel), or in several (ShardedModel).

    Their scores have the same bits.
    """

    threshold: ClassVar[float] = 0.0
    log_scores: ClassVar[bool] = False

    W: sp.csr_array

    @property
    @abstractmethod
    def form(self) -> str:
        """The form of the weights: "float32", "half" or "8-bit"."""

    @property
    @abstractmethod
    def weights_per_label(self) -> np.ndarray:
        """The number of weights of every label."""

    @abstractmethod
    def all_weights(self) -> sp.csr_array:
        """Return the weights of all features, dense ones too, as one sparse matrix of the shape of W."""

    def explain(self, x: Rows, label: int, *, top: int | None = None) -> Explanation:
        """The features of the single row `x` behind its score for `label` (a column number), largest share first."""
        x = self._one_row(x)
        (label,) = self._label_ids([label])
        features, weights, bias = self.label_weights(label)
        shares = self._shares(x, dict(zip(features.tolist(), weights.tolist(), strict=True)))
        offset = 0.0 if self.rules is None else float(self.rules.offsets[label])
        score = sum(share.contribution for share in shares) + bias + offset
        probability = self._probability(x, label, score)
        return Explanation(int(label), self.label_name(label), score, bias, shares[:top], offset, probability)


class WeightsInOnePiece(LabelWeights):
    """Base class of models that hold the weights of all labels together, with or without dense weights."""

    dense: DenseWeights | None

    @property
    def dense_columns(self) -> np.ndarray | None:
        return None if self.dense is None else self.dense.columns

    def all_weights(self) -> sp.csr_array:
        if self.dense is None:
            return self.W
        W, own = self.W, sp.coo_array(self.dense.floats())
        places = own.row, self.dense.columns[own.col]
        return canonical_csr(W + sp.csr_array((own.data, places), shape=W.shape))

    def _check_fields(self) -> None:
        if self.dense is not None and len(self.dense.weights) != self.n_labels:
            found = len(self.dense.weights)
            raise InputError(f"W has the weights of {self.n_labels} labels, but there are dense weights of {found}")
        self._check_names()
        self._check_decisions()

    def _with_dense(self, label: int, features: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The features and weights of a label with its dense ones, in the order of the features."""
        if self.dense is None:
            return features, weights
        features = np.concatenate([features, self.dense.columns])
        weights = np.concatenate([weights, self.dense.floats(label)])
        order = np.argsort(features)
        return features[order], weights[order]


@dataclass(frozen=True, eq=False)
class StoredLists:
    """The lists of W by feature, from a file. They are used only with the W that they were stored with."""

    W: sp.csr_array
    lists: FeatureLists


@dataclass(frozen=True)
class LinearModel(WeightsInOnePiece):
    """The weights W, and everything that is needed to use them: names, text pipeline, bias, and `normalize`, which
    says whether rows are divided by their length before they are scored."""

    W: sp.csr_array
    n_features: int
    bias: float = 0.0
    multiclass: bool = False
    label_names: np.ndarray | None = None
    feature_names: Sequence[str] | None = None
    text_features: FeaturePipeline | None = None
    normalize: bool = False
    calibrator: Calibrator | None = None
    thresholds: Thresholds | None = None
    rules: Rules | None = None
    dense: DenseWeights | None = None
    stored: StoredLists | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = self.n_features + (self.bias > 0)
        if self.W.shape[1] != columns:
            raise InputError(f"W has {self.W.shape[1]} columns; {self.n_features} features and the bias make {columns}")
        self._check_fields()

    @property
    def form(self) -> str:
        return FLOAT32

    @property
    def n_labels(self) -> int:
        return int(self.W.shape[0])

    @property
    def n_weights(self) -> int:
        return int(self.W.nnz) + (0 if self.dense is None else self.dense.weights.size)

    @property
    def weights_per_label(self) -> np.ndarray:
        return np.asarray(np.diff(self.W.indptr) + (0 if self.dense is None else self.dense.n_dense))

    @property
    def lists(self) -> FeatureLists | None:
        """W by feature, if it was stored or the index is made."""
        if "index" in self.__dict__:
            index = self.index.sparse if isinstance(self.index, HybridIndex) else self.index
            return cast(InvertedIndex, index).lists
        return self.stored.lists if self.stored is not None and self.stored.W is self.W else None

    def _search(self, X: Rows, k: int, n_jobs: int | None = None) -> TopK:
        """The k best labels of rows that are checked and normalized. The first rows of a process need no index."""
        if "index" in vars(self) or isinstance(X, HybridRows):
            return super()._search(X, k, n_jobs)
        lists = self.lists
        n_entries = X.shape[0] * self.n_labels if lists is not None else 4 * self.n_weights
        if not plain.affordable(X, self.n_labels, n_entries):
            return super()._search(X, k, n_jobs)
        k = min(k, self.n_labels if self.rules is None else self.rules.n_allowed)
        offsets = None if self.rules is None else self.rules.offsets
        return plain.best(plain.scores(X, canonical(self.W), self.bias, offsets, lists), k)

    @cached_property
    def index(self) -> InvertedIndex | HybridIndex:
        """W stored by feature. The index is made at the first prediction, unless it was stored with the model."""
        return self.indexed(None if self.rules is None else self.rules.offsets)

    def indexed(self, offsets: np.ndarray | None) -> InvertedIndex | HybridIndex:
        """The index with these offsets of the labels instead of those of the rules."""
        lists = self.lists
        if lists is None:
            remedy = "predict on a machine with more memory, or train on fewer features"
            memory.must_fit(self.n_features, "features", FEATURE_BYTES, remedy)
        sparse = InvertedIndex.of(self.W, self.n_features, self.bias, offsets, lists)
        return sparse if self.dense is None else HybridIndex(sparse, self.dense)

    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of the given labels, which are column numbers: a float32 array of shape (rows, len(labels))."""
        X = self._rows(X)
        ids = self._label_ids(labels)
        W = self.W[ids]
        sparse = X.sparse if isinstance(X, HybridRows) else X
        scores = np.asarray((sparse @ W[:, : self.n_features].T).toarray(), np.float32)
        if self.dense is not None and isinstance(X, HybridRows):
            scores += X.dense @ self.dense.floats(ids).T
        if self.bias:
            scores += np.float32(self.bias) * W[:, [self.n_features]].toarray().ravel()
        if self.rules is not None:
            scores += self.rules.offsets[np.asarray(labels)]
        return scores

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight (in increasing order), their weights, and the bias term of every score."""
        w = self.W[[label]]
        own = w.indices < self.n_features
        return *self._with_dense(label, w.indices[own], w.data[own]), self.bias * float(w.data[~own].sum())

    def with_dense(self, columns: np.ndarray) -> LinearModel:
        """The model with the weights of these features in a dense array, if most of them are not zero."""
        own = self.W[:, columns]
        if self.dense is not None or own.nnz < MIN_DENSITY * own.shape[0] * own.shape[1]:
            return self
        is_dense = np.zeros(self.W.shape[1], bool)
        is_dense[columns] = True
        W = self.W.copy()
        W.data = np.where(is_dense[W.indices], np.float32(0), W.data)
        W.eliminate_zeros()
        return replace(self, W=W, dense=DenseWeights.of(own.toarray(), columns), stored=None)

    # --- parts -------------------------------------------------------------------------------------------------------

    def slice(self, start: int, stop: int) -> LinearModel:
        """The model of the labels start to stop - 1, renumbered from 0."""
        names = None if self.label_names is None else self.label_names[start:stop]
        dense = None if self.dense is None else self.dense[start:stop]
        return replace(self, W=self.W[start:stop], dense=dense, label_names=names, stored=None)

    @staticmethod
    def stack(parts: Sequence[LinearModel]) -> LinearModel:
        """Stack models into one model with the labels of all parts, in their order. The parts must have the same
        number of features, bias and `normalize`."""
        if not parts:
            raise InputError("there is no model to stack; give at least one")
        first = parts[0]
        convention = (first.n_features, first.bias, first.normalize)
        if any((part.n_features, part.bias, part.normalize) != convention for part in parts):
            raise InputError("models to be stacked differ in their number of features, their bias or their normalize")
        named = [part.label_names for part in parts if part.label_names is not None]
        if named and len(named) < len(parts):
            raise InputError("some of the models to be stacked have label names and some have none")
        W = sp.csr_array(sp.vstack([part.W for part in parts], format="csr"))
        dense = DenseWeights.stack([part.dense for part in parts])
        if len({names.dtype.kind for names in named}) > 1:  # NumPy would turn numbers into strings
            named = [names.astype(object) for names in named]
        return replace(first, W=W, dense=dense, label_names=np.concatenate(named) if named else None, stored=None)
