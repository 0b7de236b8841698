"""PDSparse as a user meets it: the choice of C and lam, held-out rows, threads, errors, the command line."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

import longtail as lt
from longtail.cli import app
from longtail.errors import InputError
from longtail.methods.pd_sparse import STAGES, frank_wolfe, stages
from longtail.training import Status
from tests.methods.one_vs_all.problems import random_problem, text_like


def bytes_of(clf):
    W = clf.model_.W
    return [part.tobytes() for part in (W.data, W.indices, W.indptr)]


def stages_of(clf):
    """The stage of every pass, by name."""
    return [STAGES[code] for code in clf.training_.pass_stage]


def figure(clf, name, stage):
    """A figure of the passes of one stage."""
    chosen = clf.training_.pass_stage == STAGES.index(stage)
    return clf.training_.figures[name][chosen].tolist()


@pytest.fixture(scope="module")
def text():
    X, Y = text_like(7, n=650, d=500, L=250)
    with_labels = np.flatnonzero(np.diff(Y.indptr))[:600]
    return sp.csr_array(X[with_labels]), sp.csr_array(Y[with_labels])


@pytest.mark.parametrize("search", ["subset", "exact", "sampled"])
def test_threads_do_not_change_a_byte(text, search, monkeypatch):
    monkeypatch.setattr(frank_wolfe, "SHARE_WORK", 100)  # else one thread does all of so little work
    models = [lt.PDSparse(search=search, n_jobs=n_jobs, max_iter=3).fit(*text) for n_jobs in (1, 2, 4)]
    assert len({tuple(bytes_of(clf)) for clf in models}) == 1
    for name, values in models[0].training_.figures.items():
        assert all(clf.training_.figures[name].tobytes() == values.tobytes() for clf in models), name
    assert models[0].score(*text) > 0.5


def test_the_seed_decides(text):
    first, second = (lt.PDSparse(C=1.0, max_iter=2, random_state=seed).fit(*text) for seed in (1, 2))
    assert bytes_of(first) != bytes_of(second)
    assert bytes_of(first) == bytes_of(lt.PDSparse(C=1.0, max_iter=2, random_state=1).fit(*text))
    lt.PDSparse(C=1.0, max_iter=1, random_state=np.random.RandomState(3)).fit(*text)
    lt.PDSparse(C=1.0, max_iter=1, random_state=None).fit(*text)


def test_the_best_pair_of_the_path_is_taken(text):
    clf = lt.PDSparse(C=[5, 0.001], lam=(0.02, 100.0), post_solve=False).fit(*text)
    tried = list(zip(figure(clf, "pass_C", "path"), figure(clf, "pass_lam", "path"), strict=True))
    expected = [(0.001, 100.0), (0.001, 0.02), (5.0, 100.0), (5.0, 0.02)]
    assert tried == [pair for pair in expected for _ in range(2)]
    assert (clf.C_, clf.lam_) == (5.0, 0.02)
    ends = dict(zip(tried, figure(clf, "pass_precision", "path"), strict=True))
    assert max(ends, key=ends.__getitem__) == (5.0, 0.02)


def test_the_settings_of_the_paper(text):
    """Section 5: C = 1, lam of 0.01 to 10 by held-out rows, nu = 3, one label returned, three passes without gain; the
    sampled search of section 4.4, one row after the other, and no training on held-out rows."""
    clf = lt.PDSparse.paper().fit(*text)
    assert (clf.C_, clf.lam_ in (0.1, 0.01)) == (1.0, True)
    used = clf.training_.settings
    assert (used["search"], used["n_iter_no_change"], used["batch_size"]) == ("sampled:subsets=3,returned=1", 3, 1)
    assert used["validation_depth"] == 1  # accuracy
    assert set(stages_of(clf)) <= {"path", "train", "post-solve"}
    assert set(clf.training_.pass_rows.tolist()) == {540}  # never the 60 held-out rows, and never a sample
    lams, precisions = (np.array(figure(clf, name, "path")) for name in ("pass_lam", "pass_precision"))
    best = {}
    for lam in (10, 1, 0.1, 0.01):
        own = precisions[lams == lam]
        assert len(own) == int(np.argmax(own)) + 1 + 3  # three more than the best one
        best[lam] = own.max()
    assert best[clf.lam_] == max(best.values())
    with pytest.raises(InputError, match="4 pairs of C and lam can only be compared on held-out rows"):
        lt.PDSparse.paper(early_stopping=False).fit(*text)


@pytest.mark.parametrize(
    ("depth", "expected"), [(1, 1 / 2), (2, 1 / 2), (3, 5 / 12), (5, (1 / 2 + 1 / 3 + 3 / 10) / 3)]
)
def test_the_precision_on_held_out_rows_looks_at_some_labels(depth, expected):
    """Two rows with the labels {0} and {0, 1}: P@1 = 1/2, P@3 = 2/6 and P@5 = 3/10."""
    Y = sp.csr_array(np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]], np.int32))
    ranked = np.array([[2, 0, 1, 3, 4, 5], [1, 2, 3, 0, 4, 5]])
    solver = SimpleNamespace(top=lambda rows, k: ranked[rows][:, :k], samples=SimpleNamespace(n_labels=6))
    assert stages.ValidationRows(np.arange(2), Y, 3, depth).precision(solver) == pytest.approx(expected)


def test_without_a_refit_the_best_pass_is_the_model(text, monkeypatch):
    scores = iter([0.1, 0.4, 0.3, 0.2, 0.4])
    monkeypatch.setattr(stages.StagedTraining, "precision", lambda self: next(scores))
    clf = lt.PDSparse(C=5.0, lam=0.1, max_iter=20, post_solve="never", refit=False).fit(*text)
    assert stages_of(clf) == ["train"] * 5
    monkeypatch.setattr(stages.StagedTraining, "precision", lambda self: 0.5 + 0.1 * len(self.history))
    best = lt.PDSparse(C=5.0, lam=0.1, max_iter=2, post_solve="never", refit=False).fit(*text)
    np.testing.assert_allclose(clf.model_.W.toarray(), best.model_.W.toarray(), atol=1e-4)
    assert stages.n_passes(clf.training_) == stages.n_passes(best.training_) == 2


@pytest.mark.parametrize(("post_solve", "early_stopping", "passes"), [
    ("always:passes=3", True, 3), ("always", False, 1), ("auto", False, 0), (True, False, 0), ("never", True, 0),
    (False, True, 0),
])  # fmt: skip
def test_a_post_solve_that_was_asked_for_is_done(text, post_solve, early_stopping, passes):
    """With or without held-out rows, and with or without a refit."""
    for refit in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            clf = lt.PDSparse(
                C=5.0, lam=0.1, max_iter=2, post_solve=post_solve, early_stopping=early_stopping, refit=refit
            ).fit(*text)
        assert stages_of(clf).count("post-solve") == passes
        assert stages_of(clf)[len(stages_of(clf)) - passes :] == ["post-solve"] * passes
        assert clf.training_.post_solved.tolist() == [passes > 0]


def test_rows_one_after_the_other_and_batches_reach_the_same_objective(text):
    ends = []
    for batch_size in (1, 8):
        clf = lt.PDSparse(C=1.0, lam=0.1, early_stopping=False, max_iter=30, tol=0, batch_size=batch_size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            ends.append(clf.fit(*text).training_.pass_objective[-1])
    assert ends[0] == pytest.approx(ends[1], rel=2e-3)


def test_auto_chooses_c_and_scales_lam_with_it(text):
    clf = lt.PDSparse().fit(*text)
    assert clf.C_ in (1.0, 10.0)
    assert clf.lam_ == pytest.approx(0.02 * clf.C_)
    assert clf.n_iter_ == sum(stage in ("train", "refit") for stage in stages_of(clf))
    assert clf.training_.settings["C"] == [1.0, 10.0]
    assert clf.training_.settings["lam"] == pytest.approx([0.02, 0.2])
    few = lt.PDSparse().fit(np.eye(4), [0, 1, 2, 3])
    assert (few.C_, few.lam_) == (10.0, 0.2)
    assert few.predict(np.eye(4)).tolist() == [0, 1, 2, 3]


def test_training_stops_after_three_passes_without_gain_and_keeps_the_best(text, monkeypatch):
    scores = iter([0.1, 0.4, 0.3, 0.2, 0.4, 0.9, 0.9])
    monkeypatch.setattr(stages.StagedTraining, "precision", lambda self: next(scores))
    monkeypatch.setattr(stages.StagedTraining, "_refit", lambda self, passes, post_solve: None)
    monkeypatch.setattr(stages, "REFIT_SHARE", 1.0)
    clf = lt.PDSparse(C=5.0, lam=0.1, max_iter=20, post_solve=False).fit(*text)
    assert stages_of(clf) == ["train"] * 5
    assert clf.training_.counts() == {Status.EARLY_STOPPED: 1}
    monkeypatch.setattr(stages.StagedTraining, "precision", lambda self: 0.5 + 0.1 * len(self.history))
    best = lt.PDSparse(C=5.0, lam=0.1, max_iter=3, post_solve=False).fit(*text)
    assert stages_of(best) == ["train"] * 2
    assert best.training_.counts() == {Status.COMPLETED: 1}
    np.testing.assert_allclose(clf.model_.W.toarray(), best.model_.W.toarray(), atol=1e-4)
    monkeypatch.setattr(stages.StagedTraining, "precision", lambda self: 0.5 + 0.1 * len(self.history))
    last = lt.PDSparse(C=5.0, lam=0.1, max_iter=6, post_solve=False).fit(*text)
    assert stages_of(last) == ["train"] * 5
    assert abs(last.model_.W - best.model_.W).max() > 0.01  # the last weights would not have passed


def test_held_out_rows_are_learned_from_in_the_end_where_they_are_many(text):
    clf = lt.PDSparse(C=5.0, lam=0.1, validation_fraction=0.2, post_solve=False).fit(*text)
    precisions = figure(clf, "pass_precision", "train")
    assert stages_of(clf) == ["train"] * len(precisions) + ["refit"] * (1 + int(np.argmax(precisions)))
    assert set(figure(clf, "pass_rows", "train")) == {480}
    assert set(figure(clf, "pass_rows", "refit")) == {600}
    few = lt.PDSparse(C=5.0, lam=0.1, validation_fraction=0.04, post_solve=False, max_iter=4).fit(*text)
    assert stages_of(few) == ["train"] * 3 + ["refit"]
    assert few.training_.pass_rows.tolist() == [576] * 3 + [600]


def test_held_out_rows_are_not_learned_from_before_the_refit(text, monkeypatch):
    """Labels of held-out rows are changed, and the weights stay the same."""
    X, Y = text
    monkeypatch.setattr(stages.StagedTraining, "_refit", lambda self, passes, post_solve: None)
    params = {"C": 5.0, "lam": 0.1, "post_solve": False, "max_iter": 1, "n_iter_no_change": 1}
    clf = lt.PDSparse(**params)
    problem = clf._problem(X, Y)
    Y_other = Y.tolil()
    for i in problem.held_out.rows:
        n_labels = len(Y_other.rows[i])
        Y_other[i] = 0
        Y_other[i, :n_labels] = 1
    assert len(problem.held_out.rows) == 60
    assert (Y_other.tocsr() != Y).nnz > 50
    assert bytes_of(lt.PDSparse(**params).fit(X, sp.csr_array(Y_other))) == bytes_of(clf.fit(X, Y))


@pytest.mark.parametrize("many", [False, True])
def test_the_post_solve_is_kept_only_where_held_out_rows_agree(text, monkeypatch, many):
    monkeypatch.setattr(stages, "REFIT_SHARE", 0.0 if many else 1.0)
    models = {}
    for gain in (1.0, -1.0):
        passes = [0.2] * (2 if many else 1)
        steps = iter([*passes, 0.2, 0.2 + gain, 0.9, 0.9])  # passes, before and after the post-solve, refit
        with monkeypatch.context() as patch:
            patch.setattr(stages.StagedTraining, "precision", lambda self, steps=steps: next(steps))
            models[gain] = lt.PDSparse(C=5.0, lam=0.5, max_iter=2).fit(*text)
        assert models[gain].lam_ == 0.5
    expected = ["train"] * len(passes) + ["post-solve", "refit"]
    assert stages_of(models[-1.0]) == expected
    assert stages_of(models[1.0]) == [*expected, "post-solve"]
    kept, undone = models[1.0].model_.W, models[-1.0].model_.W
    assert kept.nnz <= undone.nnz
    assert abs(kept).sum() > abs(undone).sum()  # the same weights, no longer pulled towards zero
    assert not (kept.astype(bool) > undone.astype(bool)).nnz


def test_larger_lam_means_fewer_weights(text):
    sizes = [lt.PDSparse(C=5.0, lam=lam, post_solve=False).fit(*text).model_.W.nnz for lam in (0.01, 0.1, 1.0)]
    assert sizes[0] > 2 * sizes[1] > 4 * sizes[2] > 0


def test_the_history_tells_what_happened(text):
    clf = lt.PDSparse(C=5.0, lam=0.1, early_stopping=False, max_iter=50, tol=0.01, post_solve=False).fit(*text)
    objectives = clf.training_.pass_objective
    assert len(objectives) < 50
    assert (np.diff(objectives) < 0).all()
    assert objectives[-2] - objectives[-1] <= 0.01 * abs(objectives[-1])
    assert np.isnan(clf.training_.pass_precision).all()
    assert clf.training_.pass_k_W[-1] * 500 == pytest.approx(clf.model_.W.nnz)
    assert 1 < clf.training_.pass_k_A[-1] < 30
    assert clf.training_.counts() == {Status.CONVERGED: 1}
    with pytest.warns(ConvergenceWarning, match="1 model stopped at max_iter before reaching the tolerance"):
        short = lt.PDSparse(C=5.0, lam=0.1, early_stopping=False, max_iter=2, tol=0).fit(*text)
    assert short.training_.counts() == {Status.MAX_ITER: 1}
    assert short.n_iter_ == 2


def test_a_loaded_model_has_its_record(text, tmp_path):
    clf = lt.PDSparse(max_iter=2).fit(*text)
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert (loaded.C_, loaded.lam_, loaded.n_iter_) == (clf.C_, clf.lam_, clf.n_iter_)
    assert loaded.training_.settings == clf.training_.settings
    assert stages_of(loaded) == stages_of(clf)
    assert set(loaded.training_.figures) == {
        "C", "lam", "post_solved", "pass_stage", "pass_C", "pass_lam", "pass_rows", "pass_precision", "pass_objective",
        "pass_k_A", "pass_k_W",
    }  # fmt: skip


@pytest.mark.parametrize(("rows", "passes"), [(20, 100), (600, 66)])
def test_few_rows_are_visited_more_often(text, rows, passes):
    X, Y = text
    clf = lt.PDSparse(C=5.0, lam=0.1, early_stopping=False, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf.fit(X[:rows], Y[:rows])
    assert clf.training_.settings["max_iter"] == passes
    assert 4 < clf.n_iter_ <= passes  # fewer where no pass lowers the objective any more


def test_the_bias_is_a_constant_feature():
    X, Y = random_problem(3, n=40)
    clf = lt.PDSparse(C=1.0, bias=0.5).fit(X, Y)
    assert clf.model_.W.shape == (7, 13)
    with_column = sp.csr_array(sp.hstack([X, np.full((40, 1), 0.5, np.float32)]))
    np.testing.assert_array_equal(lt.PDSparse(C=1.0).fit(with_column, Y).model_.W.toarray(), clf.model_.W.toarray())


def test_dense_rows(text):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 20))
    classes = rng.integers(30, size=500)
    X = centres[classes] + 0.3 * rng.normal(size=(500, 20))
    for search in ("subset", "exact", "sampled"):
        assert lt.PDSparse(search=search, normalize=True).fit(X, classes).score(X, classes) > 0.95


def test_memory_is_that_of_the_nonzeros():
    """20,000 features and labels would be 1.6 GB as a dense float32 array, 900 rows of labels 72 MB."""
    import tracemalloc

    rng = np.random.default_rng(0)
    X = sp.random_array((900, 20_000), density=0.001, rng=rng, dtype=np.float32, format="csr")
    classes = rng.integers(20_000, size=900)
    Y = sp.csr_array((np.ones(900, np.int32), (np.arange(900), classes)), shape=(900, 20_000))
    lt.PDSparse(n_jobs=1).fit(X[:50], Y[:50])  # compiles
    tracemalloc.start()
    lt.PDSparse(n_jobs=1).fit(X, Y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 36e6


def test_progress_rises_to_one(text):
    seen = []
    lt.PDSparse(max_iter=2).fit(*text, progress=seen.append)
    assert seen[-1] == 1.0
    assert seen == sorted(seen)
    assert len(seen) > 20


def test_features_of_extreme_size_stay_finite():
    X = sp.csr_array(np.array([[1e38, 0], [0, 1e-38], [-0.0, 1e-45], [1, 1]], np.float32))
    clf = lt.PDSparse().fit(X, [["a"], ["b"], ["a", "b"], []])
    assert np.isfinite(clf.model_.W.data).all()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("C", 0, '"auto" or one or more numbers above 0'),
        ("C", "much", '"auto" or one or more numbers above 0'),
        ("C", [], '"auto" or one or more numbers above 0'),
        ("lam", -1.0, '"auto" or one or more numbers of at least 0'),
        ("lam", [0.1, float("nan")], '"auto" or one or more numbers of at least 0'),
        ("lam", True, '"auto" or one or more numbers of at least 0'),
        ("lam", None, '"auto" or one or more numbers of at least 0'),
        ("search", "all", "one of 'subset', 'exact', 'sampled'"),
        ("max_iter", 0, "a whole number of at least 1"),
        ("tol", -1, "a number of at least 0"),
        ("early_stopping", 1, "True or False"),
        ("validation_fraction", 1.0, "a number above 0 and below 1"),
        ("validation_depth", 0, "a whole number of at least 1"),
        ("n_iter_no_change", 0, "a whole number of at least 1"),
        ("post_solve", 1, "one of 'auto', 'always', 'never'"),
        ("path", "short", "one of 'probe', 'full'"),
        ("refit", 1, "True or False"),
        ("batch_size", 0, "a whole number of at least 1"),
        ("random_state", -1, "None, a whole number from 0 to 2^32 - 1 or a RandomState"),
        ("bias", -1, "a number of at least 0"),
    ],
)
def test_bad_parameters_are_named_at_fit(name, value, wanted):
    with pytest.raises(InputError) as error:
        lt.PDSparse(**{name: value}).fit([[1.0]], ["a"])
    assert str(error.value) == f"The '{name}' parameter of PDSparse must be {wanted}. Got {value!r} instead."


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("subset:subsets=0", "the option 'subsets' must be a whole number of at least 1. Got 0 instead."),
        ("exact:returned=1.5", "the option 'returned' must be a whole number. Got '1.5' instead."),
        ("subset:least=0", "the option 'least' must be a whole number of at least 1. Got 0 instead."),
        ("exact:subsets=2", "'exact' takes 'returned'. Got 'exact:subsets=2' instead of the form"),
    ],
)
def test_bad_options_of_a_search(search, message):
    with pytest.raises(InputError) as error:
        lt.PDSparse(search=search).fit([[1.0]], ["a"])
    assert str(error.value).startswith(f"The 'search' parameter of PDSparse: {message}")


def test_options_of_a_search_are_used(text):
    def settings(search):
        return lt.PDSparse(C=1.0, search=search, max_iter=1).fit(*text).training_.settings["search"]

    assert settings("subset") == "subset:subsets=2,returned=4"  # subsets of at least 100 of 250 labels
    assert settings("subset:subsets=1,returned=2") == "subset:subsets=1,returned=2"
    assert settings("subset:least=20") == "subset:subsets=5,returned=4"
    assert settings("sampled:returned=7") == "sampled:subsets=2,returned=7"
    assert settings("exact") == "exact:returned=4"


def test_the_command_line_trains_predicts_evaluates_inspects_and_explains(tmp_path):
    words = ["apple", "bridge", "cat", "drum", "engine", "forest"]
    rows = [{"text": f"{word} number {i}", "labels": [word.upper()]} for i in range(40) for word in words]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))

    def say(*words):
        result = CliRunner().invoke(app, [str(word) for word in words], prog_name="longtail")
        assert result.exit_code == 0, result.stderr  # stderr has the plan, and says if kernels are compiled
        return result.stdout

    model = tmp_path / "model"
    options = ["--method", "pd-sparse", "--C", "1,10", "--lam", "0.1", "--search", "exact:returned=2", "--n-jobs", "1"]
    result = json.loads(say("train", data, model, *options, "--json"))
    assert (result["method"], result["labels"]) == ("pd-sparse", 6)
    clf = lt.load(model)
    assert (clf.C, clf.lam, clf.search) == ("1,10", 0.1, "exact:returned=2")
    expected = lt.PDSparse(C=(1, 10), lam=0.1, search="exact:returned=2").fit(lt.read(data))
    assert bytes_of(clf) == bytes_of(expected)
    assert json.loads(say("evaluate", model, data, "--json"))["overall"]["P@1"] > 0.9
    assert "APPLE" in say("predict", model, data).splitlines()[0]
    assert "pd-sparse" in say("inspect", model)
    assert "apple" in say("explain", model, "--text", "an apple")
