"""The base class of all estimators: training, prediction, explanations and saving.

A method only turns canonical X and Y into a `Problem` (methods/problem.py). The base class does the rest: it calls
methods/solving.py, which solves the blocks and stacks their parts.
"""

from __future__ import annotations

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from longtail import check, memory, metrics, parallel, store, training
from longtail.calibration import HeldOut
from longtail.compiled import clock
from longtail.data import Dataset, TextFeatures
from longtail.data.text_features import fitted_features
from longtail.errors import InputError, ModelError
from longtail.growth import Growth
from longtail.hybrid import HybridRows, Rows, normalized
from longtail.methods import calibrating, planning, solving, verbosity
from longtail.methods.decisions import Decisions
from longtail.methods.planning import Plan, Planning
from longtail.methods.problem import NO_EXTRAS, Extras, Problem
from longtail.methods.solving import Progress, Solved
from longtail.methods.updating import Change, Updating
from longtail.models import Explanation, Model
from longtail.topk import TopK
from longtail.training import NO_RECORD, Training

RENUMBER = "number the ones in use from 0 without gaps, or correct the number in the file's header"
HOW = ("n_jobs", "warm_start", "verbose")  # parameters that say how to train, and do not change the model
RUN_PARAMETERS = (*HOW, "random_state")  # they describe a run, so they are not saved with the model


class _Data(NamedTuple):
    """Everything that `fit` was given, in canonical form."""

    X: Any
    Y: sp.csr_array
    label_names: np.ndarray
    multiclass: bool
    feature_names: Sequence[str] | None
    text_features: TextFeatures | None
    dense_columns: np.ndarray | None = None  # features that most rows use, if there are many
    sample_weight: np.ndarray | None = None


class ExtremeClassifier(Planning, Decisions, Updating, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of all estimators. A method sets `method` and implements `_check_parameters` and `_problem`."""

    method: ClassVar[str]
    takes_dense: ClassVar[bool] = False  # whether `_problem` accepts a dense X
    matches_scale: ClassVar[float] = 0.0  # how far calibration matches the scales of fits (calibration/scale.py)
    takes_hybrid: ClassVar[bool] = False  # whether `_problem` accepts HybridRows; otherwise they become one matrix
    model_: Model
    training_: Training
    classes_: np.ndarray
    multiclass_: bool
    n_features_in_: int
    n_iter_: int
    n_jobs: int | None
    normalize: bool
    calibrate: bool | str
    random_state: Any
    verbose: int = 0  # also for a method that has no such parameter

    _extras: Extras = NO_EXTRAS  # set on the copy that makes a problem
    _paper: ClassVar[Mapping[str, Any]] = {}  # the parameters of the method's paper

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return the estimator with the settings of the method's paper, each as a parameter of its own.

        `parameters` replace single ones. Parameters that the paper does not have keep their defaults. The page of the
        method says where the algorithm itself differs from the paper.
        """
        return cls(**{**cls._paper, **parameters})

    # --- training ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        text_features: TextFeatures | None = None,
        label_names: Sequence[Any] | np.ndarray | None = None,
        feature_names: Sequence[str] | None = None,
        progress: Progress | None = None,
        run: str | os.PathLike[str] | None = None,
        workers: str | parallel.Workers | None = None,
        shard_size: int | None = None,
        plan: Callable[[Plan], object] | None = None,
    ) -> Self:
        """Train on the rows of X and their labels y.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features), texts, or a Dataset
            A Dataset brings its own labels, names and text pipeline; pass it without y.
        y : 1-d array of classes, sparse or dense 0/1 indicator, or one list of labels per row
            A 1-d y makes `predict` return classes. The other forms make it return an indicator.
        text_features : TextFeatures, optional
            If X holds texts: how to turn them into features. A fitted object is used without fitting it again. If X
            was made by a fitted TextFeatures, pass that object, and the model can predict from raw texts.
        label_names, feature_names : sequences, optional
            Names of the columns of y and of X.
        progress : callable, optional
            Called with the share of the work that is done, from 0 to 1.
        run : folder, optional
            Where to keep finished blocks. After an interruption, the same call resumes from this folder and gives the
            same model.
        workers : "threads", "processes:NUMBER", "ray" or "ray:ADDRESS", optional
            What solves the blocks. The default is threads.
        shard_size : int, default=512 MB
            A linear model with more bytes of weights is divided into shards of this size. It gives the same answers.
            With `run`, every shard is written there as soon as it is complete, and the model is opened memory-mapped.
            It then need not fit into memory.
        plan : callable, optional
            Called with the plan of the fit (see `plan`) before training begins, for example `print`. An error that it
            raises ends the fit.

        Returns
        -------
        self
        """
        self._check_all_parameters()
        who = parallel.Workers.of(workers)
        check.shard_size(shard_size)
        wall, cpu = clock()
        data = self._canonical(X, y, text_features, label_names, feature_names)
        rows = normalized(data.X) if self.normalize else data.X
        with verbosity.shown(self, progress) as told:
            model, record, self.held_out_ = self._trained(rows, data, told, run, who, shard_size, plan)
        if data.dense_columns is not None:
            model = model.with_dense(data.dense_columns)
        self.growth_ = Growth.of(rows, data.Y)
        self.model_ = replace(
            model,  # type: ignore[type-var]
            normalize=bool(self.normalize),
            multiclass=data.multiclass,
            label_names=data.label_names,
            feature_names=data.feature_names,
            text_features=data.text_features,
        )
        self.training_ = training.timed(
            record, wall_seconds=clock()[0] - wall, cpu_seconds=clock()[1] - cpu, peak_bytes=memory.peak()
        )
        self._expose()
        self._warn_of_failures()
        return self

    def _trained(
        self,
        X: Any,
        data: _Data | Change,
        progress: Progress,
        run: str | os.PathLike[str] | None,
        workers: parallel.Workers,
        shard_size: int | None,
        tell: Callable[[Plan], object] | None = None,
    ) -> tuple[Model, Training, HeldOut | None]:
        """Return the model of canonical rows, its training record, and the predictions for held-out rows, if any.

        A fit with calibration consists of several fits. Each has its own folder inside the run folder. The plan of all
        of them is made from the first.
        """
        announce = planning.Announcement(tell, 1.0 if tell is None else self._n_fits(data.Y))

        def solve(
            maker: ExtremeClassifier,
            X: Any,
            Y: sp.csr_array,
            progress: Progress,
            name: str,
            extras: Extras = NO_EXTRAS,
            used: Any = slice(None),  # the rows of the data that X has
        ) -> Solved:
            weight = None if data.sample_weight is None else data.sample_weight[used]
            extras = replace(extras, sample_weight=weight)
            folder = run if run is None or not name else Path(run) / name
            job = maker._job(X, Y, data.label_names, extras)
            return solving.solve(job, progress, folder, workers, shard_size, announce(job))

        return self._train(solve, X, data.Y, progress)

    def _train(
        self, solve: calibrating.Solve, X: Any, Y: sp.csr_array, progress: Progress
    ) -> tuple[Model, Training, HeldOut | None]:
        """Return the same as `_trained`. The function `solve` fits one estimator."""
        if self.calibrate is False:
            solved = solve(self, X, Y, progress, "")
            return solved.model, solved.record, None
        return calibrating.fit(self, solve, X, Y, progress)

    def _job(self, X: Any, Y: sp.csr_array, label_names: np.ndarray, extras: Extras) -> solving.Job:
        """Return the problem, with everything that another process needs to rebuild it."""
        params = self.get_params(deep=False)
        maker = copy.copy(self)
        maker._extras = extras
        if not params.get("warm_start"):  # no model of an earlier fit is sent to workers
            for fitted in ("model_", "training_", "held_out_"):
                maker.__dict__.pop(fitted, None)
        problem, setup_seconds = planning.timed(lambda: maker._problem(X, Y))
        return solving.Job(
            problem=problem,
            maker=maker,
            X=X,
            Y=Y,
            parameters={name: value for name, value in params.items() if name not in HOW},
            label_names=label_names,
            n_jobs=self.n_jobs,
            setup_seconds=setup_seconds,
        )

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise InputError if a parameter of the method is invalid. The data is not needed for this."""

    @abstractmethod
    def _problem(self, X: Any, Y: sp.csr_array) -> Problem:
        """Return the training problem of canonical X and Y.

        X is a csr_array; or dense if `takes_dense` is set; or HybridRows if `takes_hybrid` is set.
        """

    def _after(self, record: Training) -> ExtremeClassifier:
        """Return the estimator that repeats the choices of a fit with this record, if the method makes any."""
        return self

    def _column_bytes(self) -> tuple[int, int]:
        """Return the bytes that training needs per feature and per label, including unused features and labels."""
        return 24, 60

    def _check_all_parameters(self) -> None:
        self._check_parameters()
        check.flag(self, "normalize")
        check.n_jobs(self)
        check.random_state(self)
        check.verbose(self)
        calibrating.check_way(self.calibrate, type(self).__name__)

    def _canonical(
        self,
        X: Any,
        y: Any,
        text_features: TextFeatures | None,
        label_names: Sequence[Any] | np.ndarray | None,
        feature_names: Sequence[str] | None,
    ) -> _Data:
        """Check the arguments of `fit` and bring them into canonical form."""
        if isinstance(X, Dataset):
            if y is not None:
                raise InputError("fit got a Dataset and y; a Dataset has its own labels, so pass it alone")
            text_features = X.text_features if text_features is None else text_features
            label_names = X.label_names if label_names is None else label_names
            feature_names = X.feature_names if feature_names is None else feature_names
            X, y = X.X, X.Y
        texts = check.texts(X)
        if texts is not None:
            text_features, X = fitted_features(texts, text_features)
        X = check.feature_matrix(X, estimator=self, reset=True, keep_dense=self.takes_dense, find_dense=True)
        dense_columns = X.columns if isinstance(X, HybridRows) else None
        if isinstance(X, HybridRows) and not self.takes_hybrid:
            X = X.tocsr()
        per_feature, per_label = self._column_bytes()
        memory.must_fit(X.shape[1], "features", per_feature, RENUMBER)
        if sp.issparse(y):
            memory.must_fit(y.shape[-1], "labels", per_label, RENUMBER)
        Y, names, multiclass = check.label_matrix(y, X.shape[0])
        if label_names is not None:
            if len(label_names) != len(names):
                raise InputError(f"{len(label_names)} label names were given for the {len(names)} labels of y")
            names = check.name_array(list(label_names))
        if feature_names is None and hasattr(self, "feature_names_in_"):
            feature_names = self.feature_names_in_.tolist()
        if feature_names is not None and len(feature_names) != X.shape[1]:
            raise InputError(f"{len(feature_names)} feature names were given for the {X.shape[1]} features of X")
        return _Data(X, Y, names, multiclass, feature_names, text_features, dense_columns)

    def _expose(self) -> None:
        """Set the fitted attributes that follow from the model and the record."""
        assert self.model_.label_names is not None
        self.classes_ = self.model_.label_names
        self.multiclass_ = self.model_.multiclass
        self.n_features_in_ = self.model_.n_features
        self.n_iter_ = int(self.training_.n_iter.max(initial=0))

    def _warn_of_failures(self) -> None:
        failed = [status for status in self.training_.counts() if not status.is_success]
        if failed:
            said = [text for text, status in zip(self.training_.messages(), self.training_.counts(), strict=True)
                    if status in failed]  # fmt: skip
            warnings.warn("; ".join([*said, "training_.status tells which"]), ConvergenceWarning, stacklevel=3)

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of every row, best first: `.labels` are column numbers of Y, `.scores` their scores.

        A calibrated model ranks by probability and sets `.probabilities`, which is None otherwise.
        X holds rows as in `fit`, or raw texts if the model has a text pipeline. At most `n_labels` labels are returned.
        """
        k, rows = check.top_k(k), self._rows(X)
        top = self.model_.predict_topk(rows, k, n_jobs=self.n_jobs)
        return replace(top, names=self.classes_)

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores of all labels: a dense float32 array of shape (n_samples, n_labels).

        If y was 1-d with two classes, the result follows scikit-learn: one number per row, above 0 for `classes_[1]`.
        If the array would not fit in memory, InputError is raised. `predict_topk` needs no such array.
        """
        rows = self._rows(X)
        n_labels = self.model_.n_labels
        memory.must_fit(
            rows.shape[0] * n_labels,
            f"scores ({rows.shape[0]:,} rows by {n_labels:,} labels)",
            4,
            "use predict_topk(X, k), which keeps the k best of each row, or pass fewer rows",
        )
        scores = self.model_.scores(rows, np.arange(n_labels))
        if self.multiclass_ and n_labels == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Precision at 1: the share of rows whose best label is right. For a 1-d y this is the accuracy.

        y has any form that `fit` accepts. If X is a Dataset, y may be omitted. An indicator must have one column for
        each label of the model.
        """
        y = X.Y if isinstance(X, Dataset) and y is None else y
        top = self.predict_topk(X, 1)
        truth = self._truth(y, len(top))
        if sample_weight is None:
            return float(metrics.precision_at_k(truth, top, 1))
        hits = np.asarray(truth[np.arange(len(top)), top.labels[:, 0]], np.float64).ravel()
        return float(np.average(hits, weights=check.sample_weight(sample_weight, len(top))))

    def explain(self, x: Any, label: Any = None, *, column: int | None = None, top: int | None = None) -> Explanation:
        """Explain the score of one row or text for one label.

        Parameters
        ----------
        x : one row, or one text
        label : name of the label, as in `classes_`
        column : number of the label, as in `predict_topk(X).labels`
            Give a name or a number. Without either, the best label is explained.
        top : how many features to list; all by default
        """
        if label is not None and column is not None:
            raise InputError("explain got a label and a column; give one of them")
        rows = self._rows(check.one_row(x))
        if label is not None:
            column = self._column(label)
        elif column is None:
            column = int(self.model_.predict_topk(rows, 1).labels[0, 0])
        return self.model_.explain(rows, column, top=top)

    def _column(self, label: Any) -> int:
        """Return the column of the label with this name."""
        check_is_fitted(self)
        found = np.flatnonzero(self.classes_ == label) if np.ndim(label) == 0 else np.empty(0)
        if not len(found):
            hint = "; a column number goes into column=" if isinstance(label, int | np.integer) else ""
            raise InputError(f"label {label!r} is not among the {self.model_.n_labels:,} names in classes_{hint}")
        return int(found[0])

    def _rows(self, X: Any) -> Rows:
        """Return the canonical rows of X, which may also be a Dataset or raw texts."""
        check_is_fitted(self)
        if isinstance(X, Dataset):
            X = X.X
        if isinstance(X, list | tuple) and not X:
            return sp.csr_array((0, self.model_.n_features), dtype=np.float32)
        texts = None if sp.issparse(X) else check.texts(X)
        if texts is not None:
            if self.model_.text_features is None:
                raise InputError(
                    "the model was trained without a text pipeline, so it cannot read texts; pass rows of numbers"
                )
            X = self.model_.text_features.transform(texts)
        return check.feature_matrix(X, estimator=self, find_dense=self.model_.dense_columns is not None)

    # --- store -------------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], *, weights: str | None = None, index: bool | None = None) -> None:
        """Write the model to `folder`, replacing a model there in one step. `longtail.load` reads it back.

        weights : the form of the weights of a linear model: "float32", "half" (half precision), or "8-bit", which
            changes a weight by at most 1/254 of the largest weight of its feature. None means "half" for models with a
            million weights or more if nothing is lost, so that scores have the same bits. Others stay as they are.
        index : whether the index of float32 weights is stored, too. It takes one to two times as much space as the
            weights. Processes that load the model then share it, and their first prediction does not have to make it.
            None means if there are a million weights or more. True or False without `weights` means float32 weights.
        """
        check_is_fitted(self)
        provenance = store.Provenance(self.method, self._saved_params(), self.training_, self.growth_)
        store.write_model(folder, self.model_, provenance, form=store.Form(weights, index))

    def _saved_params(self) -> dict[str, Any]:
        """Return the parameters that describe the model. Parameters of the run and arrays are left out."""
        own = self.get_params(deep=False).items()
        return {name: value for name, value in own if name not in RUN_PARAMETERS and np.ndim(value) == 0}

    @classmethod
    def _fitted(cls, model: Model, provenance: store.Provenance, *, where: str | os.PathLike[str]) -> Self:
        """Return the estimator for a model that was read from the folder `where`."""
        try:
            estimator = cls(**provenance.params)
            estimator._check_all_parameters()
        except (TypeError, InputError) as error:
            raise ModelError(where, f"has parameters that {cls.__name__} does not take: {error}") from error
        if model.label_names is None:
            model = replace(model, label_names=np.arange(model.n_labels))  # type: ignore[type-var]
        estimator.model_ = model
        estimator.training_ = provenance.training or NO_RECORD
        estimator.growth_ = provenance.growth
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
