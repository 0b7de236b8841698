"""Updates of a trained model: labels and rows are added, removed or changed, and only what they touch is trained.

`update` gets all rows as they are now. Which of them are new, and which labels have other rows than before, it finds
with the hashes that the model keeps (growth.py). Label columns never change: new labels get the columns after the last,
retired labels keep theirs and are never predicted.

A label of a method that trains labels independently (`OneVsAll`) is trained again if

    1. it is new, or
    2. its rows are others than before: one was added, removed, relabelled or edited, or
    3. the rows that were added break its certificate.

Every other label keeps its weights byte for byte. Rule 3 follows from the certificate of the last fit, the objective P
and a lower bound D = P (1 - gap) of its optimum. Rows without the label raise P by their loss; D stays a lower bound
of the new optimum, because a loss is never negative. With weights w and the cost C the label is therefore as good as
the tolerance allows if

    (P + dP - D) <= tol (P + dP),     dP = C sum over added rows x of loss(-w.x)

Only the added rows are read for that. P and the gap of the record become the new ones, so that updates add up. Small
weights that were set to zero count as zero in w, as they do in prediction.

A removed row is checked by rule 2 only: labels that did not have it keep the weights that tell them apart from it.

Methods that train labels together (`PDSparse`, `Memoir`, `Mach`) continue from the weights of the model. They visit the
rows that changed several times, and then all rows, but less often than a fit does. Their weights all change a little.
An `Ensemble` is trained again on all rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail import check, growth, memory, training
from longtail.data import Dataset
from longtail.errors import InputError
from longtail.growth import Growth
from longtail.hybrid import as_csr, widened
from longtail.matrix import canonical_csr, normalize_rows
from longtail.methods import solving, verbosity
from longtail.methods.calibrating import counts_of
from longtail.methods.problem import Extras, OldModel, Part
from longtail.models import Model, Rules

if TYPE_CHECKING:
    from longtail.calibration import HeldOut
    from longtail.training import Training

MOST_MISSING = 0.5  # share of the known rows that may be missing; if there are more, the data cannot be all rows


@dataclass(frozen=True)
class Change:
    """The data of an update, compared with that of the model.

    X, Y : all rows, and their labels in the columns of the updated model
    label_names : the names of these columns
    hashes : the hash of every row
    is_new : which rows are new
    n_removed : how many rows of the model are gone
    retired : boolean, one per column
    touched : boolean, one per column: new labels, and labels whose rows changed
    changed : boolean, one per row: new rows, and rows whose labels may have changed
    """

    X: sp.csr_array
    Y: sp.csr_array
    label_names: np.ndarray
    hashes: np.ndarray
    is_new: np.ndarray
    n_removed: int
    retired: np.ndarray
    touched: np.ndarray
    changed: np.ndarray
    sample_weight: None = None


class Updating:
    """Mixin of all estimators that updates a trained model."""

    model_: Model
    training_: Training
    growth_: Growth | None
    classes_: np.ndarray
    multiclass_: bool
    held_out_: HeldOut | None
    n_jobs: int | None
    normalize: bool

    if TYPE_CHECKING:  # written in methods/base.py

        def _rows(self, X: Any) -> sp.csr_array: ...

        def _columns(self, names: Iterable[Any]) -> np.ndarray: ...

        def _expose(self) -> None: ...

        def _warn_of_failures(self) -> None: ...

        def _check_all_parameters(self) -> None: ...

        def _job(self, X: Any, Y: sp.csr_array, label_names: np.ndarray, extras: Extras) -> solving.Job: ...

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One entry per update: when it was, and how many rows and labels it added, removed and trained."""
        check_is_fitted(self)
        return [] if self.growth_ is None else [dict(entry) for entry in self.growth_.history]

    def update(
        self, X: Any, y: Any = None, *, retire: Iterable[Any] = (), progress: solving.Progress | None = None
    ) -> Self:
        """Bring the model up to date with the rows of X and their labels y, and train only the labels that need it.

        X and y are all rows as they are now, not only the new ones. Every label of a linear one-vs-all model is
        trained against all rows. Labels are matched by name; the columns of known labels stay, new labels come after
        them. The text pipeline of the model is used as it is. Probabilities and thresholds keep their calibration.

        `OneVsAll` trains new labels, labels whose rows changed, and labels whose certificate the added rows break. All
        other labels keep their weights, byte for byte. `PDSparse`, `Memoir` and `Mach` continue from the weights of the
        model, and so change all of them a little. An `Ensemble` is trained again on all rows.

        Parameters
        ----------
        X, y : rows and labels, as in `fit`, or a Dataset as X
        retire : names of labels
            These are no longer predicted, and their weights are dropped. Labels without any row are retired, too. A
            retired label that has rows in a later update comes back, in its old column.
        progress : callable, optional
            Called with the share of the work that is done, from 0 to 1.

        Returns
        -------
        self : `history_` has a new entry that says what was done
        """
        check_is_fitted(self)
        self._check_all_parameters()
        if "sample_weight" in self.training_.settings:
            raise InputError("update cannot know the weights of rows, and this model has some; train it again")
        begin, cpu = time.perf_counter(), time.process_time()
        drift = self._unknown_words(X)
        change = self._changed(X, y, list(retire))
        rows = normalize_rows(change.X) if self.normalize else change.X
        with verbosity.shown(self, progress) as told:
            model, record, trained = self._solved(rows, change, told)
        seconds = time.perf_counter() - begin
        self.training_ = training.timed(
            record, wall_seconds=seconds, cpu_seconds=time.process_time() - cpu, peak_bytes=memory.peak()
        )
        entry = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "what": "update",
            "rows": len(change.hashes),
            "rows_added": int(change.is_new.sum()),
            "rows_removed": change.n_removed,
            "labels": len(change.label_names),
            "labels_added": int(len(change.label_names) - self.model_.n_labels),
            "labels_retired": int(change.retired.sum() - len(self._growth().retired)),
            "labels_trained": int((trained & ~change.retired).sum()),
            "seconds": round(seconds, 3),
        }
        if drift is not None:
            entry["unknown_words"] = round(drift, 4)
        self.model_ = self._grown(model, change)
        self.growth_ = Growth(
            np.sort(change.hashes),
            growth.label_hashes(change.Y, change.hashes),
            np.flatnonzero(change.retired),
            (*self._growth().history, entry),
        )
        self._expose()
        self._warn_of_failures()
        return self

    # --- what changed ------------------------------------------------------------------------------------------------

    def _growth(self) -> Growth:
        if self.growth_ is None:
            raise InputError(
                "this model does not know the rows it was trained on, because it was saved by an earlier version or "
                "made of other models; train it again"
            )
        return self.growth_

    def _changed(self, X: Any, y: Any, retire: list[Any]) -> Change:
        """Compare the rows and labels with those of the model."""
        known = self._growth()
        rows, Y, own_names = self._canonical_data(X, y)
        names = _all_names(self.classes_, own_names)
        Y = in_columns(Y, own_names, names)
        retired = np.zeros(len(names), bool)
        retired[self._columns(retire)] = True
        if retired.any():
            Y = Y.copy()
            Y.data[retired[Y.indices]] = 0
            Y.eliminate_zeros()
        hashes = growth.row_hashes(normalize_rows(rows) if self.normalize else rows)
        is_new = ~growth.is_known(known.rows, hashes)
        n_removed = len(known.rows) - int((~is_new).sum())
        if n_removed > MOST_MISSING * len(known.rows):
            raise InputError(
                f"{n_removed:,} of the {len(known.rows):,} rows that the model was trained on are missing; update "
                "needs all rows, old and new, because every label is trained against all of them; pass all rows, or "
                "train a new model"
            )
        before = np.concatenate([known.labels, np.zeros(len(names) - len(known.labels), np.uint64)])
        had_rows = before != 0
        had_rows[known.retired] = True
        retired |= (counts_of(Y) == 0) & had_rows
        touched = (growth.label_hashes(Y, hashes) != before) & ~retired
        touched[len(known.labels) :] = True
        touched &= ~retired
        changed = is_new | growth.relabelled(Y, hashes, is_new, before)
        return Change(rows, Y, names, hashes, is_new, n_removed, retired, touched, changed)

    def _canonical_data(self, X: Any, y: Any) -> tuple[sp.csr_array, sp.csr_array, np.ndarray]:
        """Return rows with the features of the model, their labels, and the names of the labels."""
        names = None
        if isinstance(X, Dataset):
            if y is not None:
                raise InputError("update got a Dataset and y; a Dataset has its own labels, so pass it alone")
            y, names = X.Y, X.label_names
            if X.texts is not None and self.model_.text_features is not None:
                if not self.model_.takes_texts:
                    raise InputError(
                        "the model was trained with embeddings that were computed elsewhere; pass rows in place of a "
                        "Dataset: model_.text_features.transform(texts, embeddings)"
                    )
                X = X.texts
            elif X.n_features < self.model_.n_features:
                X = widened(X.X, self.model_.n_features)
        rows = as_csr(self._rows(X))
        Y, own_names, multiclass = check.label_matrix(y, rows.shape[0])
        if multiclass != self.multiclass_ and (multiclass or names is None):
            raise InputError("y must have the form that the model was trained on: one class per row, or labels per row")
        return rows, Y, own_names if names is None else check.name_array(list(names))

    def _unknown_words(self, X: Any) -> float | None:
        """Return the share of words in the texts that the text pipeline does not know. None without texts."""
        pipeline = self.model_.text_features
        texts = X.texts if isinstance(X, Dataset) else check.texts(X)
        share = getattr(pipeline, "unknown_share", None)
        return None if texts is None or share is None else share(texts)

    # --- training ----------------------------------------------------------------------------------------------------

    def _kept_part(self, X: sp.csr_array, change: Change) -> Part | None:
        """Return the part of the labels that keep their weights. None if the method trains labels together."""
        return None

    def _solved(self, X: Any, change: Change, progress: solving.Progress) -> tuple[Model, Training, np.ndarray]:
        """Return the model, its record, and which labels were trained. A method that trains labels together trains all
        of them, or none if nothing changed."""
        self.held_out_ = None
        is_trained = np.ones(len(change.label_names), bool)
        kept = self._kept_part(X, change)
        if kept is not None:
            is_trained[kept.items] = False
            extras = Extras(kept=kept)
        elif self._nothing_changed(change):
            return self.model_, self.training_, np.zeros_like(is_trained)
        else:
            newly_retired = change.retired.copy()
            newly_retired[self._growth().retired] = False
            touched = change.touched | newly_retired
            extras = Extras(old=OldModel(self.model_, self.training_, change.changed, touched, change.retired))
        solved = solving.solve(self._job(X, change.Y, change.label_names, extras), progress)
        return solved.model, solved.record, is_trained

    def _nothing_changed(self, change: Change) -> bool:
        same_labels = len(change.label_names) == self.model_.n_labels
        same_retired = np.array_equal(np.flatnonzero(change.retired), self._growth().retired)
        return same_labels and same_retired and not change.changed.any() and not change.n_removed

    def _grown(self, model: Model, change: Change) -> Model:
        """Return the trained model with everything that the old model knew beside its weights."""
        old, n_labels = self.model_, len(change.label_names)
        calibrator, thresholds = model.calibrator or old.calibrator, model.thresholds or old.thresholds
        if calibrator is not None:
            calibrator = calibrator.with_counts(counts_of(change.Y), int(change.Y.shape[0]))
        if thresholds is not None and thresholds.limits.ndim and len(thresholds.limits) < n_labels:
            usual = np.median(thresholds.limits[np.isfinite(thresholds.limits)])
            thresholds = replace(thresholds, limits=_widened(thresholds.limits, n_labels, usual))
        offsets = np.zeros(n_labels, np.float32)
        if old.rules is not None:
            offsets[: old.n_labels] = old.rules.offsets
            offsets[self._growth().retired] = 0.0
        offsets[change.retired] = -np.inf
        if old.dense_columns is not None:
            model = model.with_dense(old.dense_columns)
        return replace(
            model,  # type: ignore[type-var]
            normalize=old.normalize,
            multiclass=old.multiclass,
            label_names=change.label_names,
            feature_names=old.feature_names,
            text_features=old.text_features,
            calibrator=calibrator,
            thresholds=thresholds,
            rules=Rules(offsets) if offsets.any() else None,
        )


def _all_names(known: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the known names followed by the others of `own`."""
    there = set(known.tolist())
    new = [name for name in own.tolist() if name not in there]
    return check.name_array([*known.tolist(), *new]) if new else known


def in_columns(Y: sp.csr_array, own: np.ndarray, names: np.ndarray) -> sp.csr_array:
    """Return Y, whose columns are called `own`, with one column for each of `names`. All of `own` are among them."""
    place = {name: j for j, name in enumerate(names.tolist())}
    column = np.array([place[name] for name in own.tolist()], np.int32)
    return canonical_csr(sp.csr_array((Y.data, column[Y.indices], Y.indptr), shape=(Y.shape[0], len(names))))


def _widened(values: np.ndarray, size: int, fill: float) -> np.ndarray:
    return np.concatenate([values, np.full(size - len(values), fill, values.dtype)])
