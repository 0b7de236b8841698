"""What every estimator shares: checks at the door, label names, prediction, explaining, saving."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from longtail import check, memory, metrics, store
from longtail.data import Dataset
from longtail.errors import InputError, ModelError
from longtail.matrix import canonical_csr, normalize_rows
from longtail.models import Explanation, Model
from longtail.topk import TopK

RENUMBER = "number those that occur from 0 on, without gaps, or correct their number in the header"
Progress = Callable[[int, int], None]  # units (see `progress_unit`) done, and in all


class ExtremeClassifier(ClassifierMixin, BaseEstimator):
    """Base of all estimators. A method writes `check_parameters` and `_fit`, and names itself in `method`."""

    method: ClassVar[str]
    takes_dense: ClassVar[bool] = False  # whether `_fit` takes dense X as it is
    progress_unit: ClassVar[str] = "labels"  # what `progress` counts
    feature_bytes: int = 24  # that training takes at least for a feature, even if no row has it
    label_bytes: int = 60  # likewise for a label
    model_: Model
    classes_: np.ndarray
    multiclass_: bool
    n_features_in_: int
    n_jobs: int | None = None
    normalize: bool = False

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        text_features: Any = None,
        label_names: Sequence[Any] | np.ndarray | None = None,
        feature_names: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on the rows of X and their labels y, or on a `Dataset`, whose names and text pipeline travel along.

        X : (n, d) sparse matrix or array, or a Dataset (then without y).
        y : sparse indicator (n, L), a list of label lists (any hashable names), or a 1-d array of classes.
        text_features : the fitted TextFeatures that made X; the model then takes raw texts.
        label_names, feature_names : names of the columns of y and X.
        progress : called as progress(done, total) with numbers of labels, or of what `progress_unit` says.
        """
        self.check_parameters()
        if isinstance(X, Dataset):
            if y is not None:
                raise InputError("fit got a Dataset and y; a Dataset has its own labels, so pass it alone")
            text_features = X.text_features if text_features is None else text_features
            label_names = X.label_names if label_names is None else label_names
            feature_names = X.feature_names if feature_names is None else feature_names
            X, y = X.X, X.Y
        X = check.feature_matrix(X, estimator=self, reset=True, keep_dense=self.takes_dense)
        memory.must_fit(X.shape[1], "features", self.feature_bytes, RENUMBER)
        if sp.issparse(y):
            memory.must_fit(y.shape[-1], "labels", self.label_bytes, RENUMBER)
        Y, names, multiclass = check.label_matrix(y, X.shape[0])
        if label_names is not None:
            if len(label_names) != len(names):
                raise InputError(f"{len(label_names)} label names were given for the {len(names)} labels of Y")
            names = check.name_array(list(label_names))
        if feature_names is not None and len(feature_names) != X.shape[1]:
            raise InputError(f"{len(feature_names)} feature names were given for the {X.shape[1]} features of X")
        if self.normalize:
            X = normalize_rows(X)
        model = self._fit(X, Y, progress or (lambda done, total: None))
        self.model_ = replace(
            model,  # type: ignore[type-var]
            unit_rows=bool(self.normalize),
            multiclass=multiclass,
            label_names=names,
            feature_names=feature_names,
            text_features=text_features,
        )
        self._expose()
        return self

    def _expose(self) -> None:
        self.classes_, self.multiclass_ = self.model_.label_names, self.model_.multiclass  # type: ignore[assignment]
        self.n_features_in_ = self.model_.n_features

    @abstractmethod
    def check_parameters(self) -> None:
        """Raise InputError for a parameter that cannot be used."""

    @abstractmethod
    def _fit(self, X: Any, Y: sp.csr_array, progress: Progress) -> Model:
        """The weights for canonical X and Y; names and pipeline are added by `fit`. X is a csr_array, or, if the method
        takes such, a dense array."""

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of every row, best first: `.labels` are column numbers of Y, `.scores` their scores.

        X holds rows as in `fit`, or raw texts if the model has a text pipeline. k is cut to the number of labels.
        """
        X, k = self.to_rows(X), check.top_k(k)
        return self.model_.predict_topk(X, k, n_jobs=self.n_jobs)

    def predict(self, X: Any) -> np.ndarray | sp.csr_array:
        """The class of every row (multi-class), or the indicator of all labels that score above
        the model's threshold: 0 for linear models, a probability of 0.5 for hashed ones (multi-label)."""
        X = self.to_rows(X)
        if self.multiclass_:
            return self.classes_[self.model_.predict_topk(X, 1, n_jobs=self.n_jobs).labels[:, 0]]
        return self.model_.predict_above(X, n_jobs=self.n_jobs)

    def score(self, X: Any, y: Any = None) -> float:
        """Precision at 1: how often the best label is right. For multi-class data this is the accuracy.

        y is as in `fit`; a Dataset brings its own. An indicator must have the columns that the model was trained with.
        """
        top = self.predict_topk(X, 1)
        y = X.Y if isinstance(X, Dataset) and y is None else y
        return metrics.precision_at_k(self._truth(y, len(top)), top, 1)

    def explain(self, x: Any, label: Any, *, top: int | None = None) -> Explanation:
        """Why the one row (or text) `x` has its score for `label`, a name from `classes_` or a column number of Y.

        Where names are whole numbers, a number is taken as a name; `model_.explain` takes column numbers only.
        """
        if isinstance(x, str):
            x = [x]
        elif sp.issparse(x) and x.ndim == 1:
            x = x.reshape(1, -1)
        elif not sp.issparse(x):
            x = np.atleast_2d(x)
        x = self.to_rows(x)
        return self.model_.explain(x, self.label_id(label), top=top)

    def label_id(self, label: Any) -> int:
        """The column number of a label given by name (as in `classes_`), or by number where that is not a name."""
        check_is_fitted(self)
        found = np.flatnonzero(self.classes_ == label) if np.ndim(label) == 0 else np.empty(0)
        if len(found):
            return int(found[0])
        if isinstance(label, int | np.integer) and 0 <= label < self.model_.n_labels:
            return int(label)
        raise InputError(
            f"label {label!r} is neither one of the {self.model_.n_labels:,} names in classes_ nor a number from 0 to "
            f"{self.model_.n_labels - 1:,}"
        )

    def to_rows(self, X: Any) -> sp.csr_array:
        """Canonical rows of X: as in `fit`, or made from raw texts by the model's own pipeline."""
        check_is_fitted(self)
        if isinstance(X, Dataset):
            X = X.X
        if isinstance(X, str):
            raise InputError(f"one text was given; pass a list of texts: [{X[:40]!r}]")
        if isinstance(X, list | tuple | np.ndarray) and len(X) and isinstance(X[0], str):
            if self.model_.text_features is None:
                raise InputError(
                    "the model was trained without a text pipeline, so it cannot read texts; pass rows of numbers"
                )
            X = self.model_.text_features.transform(X)
        return check.feature_matrix(X, estimator=self)

    def _truth(self, Y: Any, n_samples: int) -> sp.csr_array:
        """Y in the model's own columns; labels that the model does not know can never be hit and are left out."""
        indicator = sp.issparse(Y) or (isinstance(Y, np.ndarray) and Y.ndim == 2 and Y.shape[1] > 1)
        Y, names, _ = check.label_matrix(Y, n_samples)
        if indicator and Y.shape[1] != self.model_.n_labels:
            raise InputError(f"y has {Y.shape[1]} columns, but the model has {self.model_.n_labels} labels")
        if indicator or np.array_equal(names, self.classes_):
            return Y
        column = {name: j for j, name in enumerate(self.classes_.tolist())}
        kept = np.array([column.get(name, -1) for name in names.tolist()])
        known = np.flatnonzero(kept >= 0)
        to_model = sp.csr_array(
            (np.ones(len(known), np.int32), (known, kept[known])), shape=(len(names), self.model_.n_labels)
        )
        return canonical_csr(Y @ to_model)

    # --- store -------------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to `folder`, replacing a model there in one step. `longtail.load` reads it back."""
        check_is_fitted(self)
        store.write_model(folder, self.model_, store.Training(self.method, self.saved_params(), self.measured()))

    def saved_params(self) -> dict[str, Any]:
        """Parameters for the manifest: not `n_jobs` and `random_state`, which concern the run, and no arrays."""
        own = self.get_params().items()
        return {name: value for name, value in own if name not in ("n_jobs", "random_state") and np.ndim(value) == 0}

    def measured(self) -> dict[str, Any]:
        """What training measured that is worth keeping with the model, as plain JSON values."""
        return {}

    def _restore(self, measured: Mapping[str, Any]) -> None:
        """Take back what `measured` gave; KeyError, TypeError, ValueError or OverflowError say that it did not."""

    @classmethod
    def _fitted(
        cls,
        model: Model,
        params: Mapping[str, Any],
        measured: Mapping[str, Any] | None = None,
        *,
        where: str | os.PathLike[str],
    ) -> Self:
        try:
            estimator = cls(**params)
            estimator.check_parameters()
        except (TypeError, InputError) as error:
            raise ModelError(where, f"has parameters that {cls.__name__} does not take: {error}") from error
        try:
            if measured:
                estimator._restore(measured)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(where, f"has figures in 'measured' that {cls.__name__} did not write: {error}") from error
        if model.label_names is None:
            model = replace(model, label_names=np.arange(model.n_labels))  # type: ignore[type-var]
        estimator.model_ = model
        estimator._expose()
        return estimator

    # --- scikit-learn ------------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")
