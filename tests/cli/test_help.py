"""Help: quick, complete, and made from the signatures."""

from __future__ import annotations

import inspect
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import longtail as lt
from longtail import check, methods
from longtail.cli import options
from longtail.methods import METHODS
from tests.cli.conftest import PROGRAM, environment

VERBS = (
    "plan", "train", "runs", "predict", "evaluate", "inspect", "explain", "update", "thresholds", "rules", "tune",
    "compare", "data", "serve", "warmup", "demo",
)  # fmt: skip
HEAVY = ("numpy", "scipy", "sklearn", "numba", "rich", "matplotlib")


def test_help_names_every_verb(good):
    out = good("--help")
    assert [verb for verb in VERBS if f"\n  {verb} " in out] == list(VERBS)
    assert "..." not in out.split("Commands:")[1]  # no description is cut off
    assert good() == out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(good, verb):
    assert good(verb, "--help").startswith(f"Usage: longtail {verb} ")


def test_usage_lines_agree_with_the_documentation(good):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()
    for verb in VERBS:
        usage = good(verb, "--help").splitlines()[0]
        assert not re.search(r"[{}]| \[?[a-z]+\]?$", usage), usage
    assert good("train", "--help").startswith("Usage: longtail train [OPTIONS] DATA MODEL\n")
    assert "`longtail train DATA MODEL`" in page


def test_method_lists_its_values(good):
    out = " ".join(good("train", "--help").split())
    assert "--method NAME one-vs-all, pd-sparse, memoir or mach. [default: one-vs-all]" in out
    assert list(METHODS) == ["one-vs-all", "pd-sparse", "memoir", "mach"]


def test_what_a_command_cannot_use_is_not_offered(good):
    out = good("train", "--method", "mach", "--help")
    assert "--warm-start" not in out  # no command has an earlier fit
    assert "--verbose" not in out  # commands show their progress, and --quiet hides it


def test_version(good):
    assert good("--version") == f"longtail {lt.__version__}\n"


def test_help_imports_nothing_heavy():
    code = (
        "import json, sys\nfrom longtail.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert json.loads(out.stdout.splitlines()[-1]) == []


def test_help_is_quick():
    """In seconds of processor time, which a busy machine does not stretch as it does the clock."""

    def used() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*PROGRAM, "--help"], capture_output=True, check=True, env=environment())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(used() for _ in range(3)) < 0.6


def test_train_help_has_every_parameter_with_its_default(good):
    out = " ".join(good("train", "--help").split())
    for target, prefix in ((lt.OneVsAll, ""), (lt.TextFeatures, "text-")):
        parameters = inspect.signature(target).parameters
        for name, parameter in ((each, parameters[each]) for each in parameters if each not in options.NOT_OFFERED):
            flag, default = f"--{prefix}{name.replace('_', '-')} ", options.default_text(parameter.default)
            said = re.split(r" --(?!no-)", out[out.index(flag) :])[0]
            said = said.removesuffix(" [auto chooses it on held-out rows]")
            assert said.endswith(f"[default: {default}]" if default else "")
    assert "Weight of the loss against the penalty" in out
    assert "--loss squared_hinge|logistic" in out


class Slow(lt.OneVsAll):
    """A method that the command line has never heard of.

    Parameters
    ----------
    patience : int, default=3
        How long to wait.
    eager : bool, default=False
        Not to wait.
    """

    method = "slow"

    def __init__(self, patience: int = 3, *, eager: bool = False) -> None:
        super().__init__()
        self.patience, self.eager = patience, eager

    def _check_parameters(self) -> None:
        check.number(self, "patience", least=1, whole=True)


def test_a_new_method_needs_no_new_line_here(good, run, files, tmp_path, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "slow", Slow)
    out = " ".join(good("train", "--method", "slow", "--help").split())
    assert "--patience <int> How long to wait. [default: 3]" in out
    assert "--eager / --no-eager Not to wait. [default: off]" in out
    assert "--C " not in out
    good("train", files / "train.txt", tmp_path / "model", "--method=slow", "--patience", "7", "--eager")
    loaded = lt.load(tmp_path / "model")
    assert (type(loaded), loaded.patience, loaded.eager) == (Slow, 7, True)
    result = run("train", files / "train.txt", tmp_path / "m2", "--method", "slow", "--patience", "0")
    assert result.stderr.startswith("Error: --patience must be a whole number of at least 1")
    result = run("train", files / "train.txt", tmp_path / "m2", "--method", "slow", "--C", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: No such option: --C")
    assert "--patience, --eager, --text-kind" in result.stderr


class Documented:
    """Both ways to write an entry.

    Parameters
    ----------
    shape : {"round", "square"}, default="round"
        What it looks
        like.
    left, right : the two sides.
    loose : int or None, default=None
        Kept [as it is].

    Attributes
    ----------
    hidden : int
        Not a parameter.
    """


def test_parameter_help_reads_both_kinds_of_entry():
    assert options.parameter_help(Documented) == {
        "shape": ("round|square", "What it looks like."),
        "left": (None, "The two sides."),
        "right": (None, "The two sides."),
        "loose": (None, "Kept [as it is]."),
    }


@pytest.mark.parametrize(
    ("hint", "kind"),
    [(int, int), (int | None, int), (float, float), (bool, bool), (tuple[int, int], tuple[int, int]), (list, None)],
)
def test_types_that_a_terminal_can_spell(hint, kind):
    assert options.option_type(hint) == kind


def test_completion_is_offered():
    shown = subprocess.run(
        PROGRAM,
        capture_output=True,
        text=True,
        env=environment(_LONGTAIL_COMPLETE="complete_bash", COMP_WORDS="longtail tr", COMP_CWORD="1"),
    )
    assert shown.stdout.split() == ["train"]


def test_every_option_in_the_documentation_exists(good):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()
    helps = {verb: good(verb, "--help") for verb in VERBS} | {"": good("--help")}
    helps["plan"] = " ".join(good("plan", "--method", method, "--help") for method in METHODS)
    helps["train"] = " ".join(good("train", "--method", method, "--help") for method in METHODS)
    assert [verb for verb in VERBS if f"## {verb}" not in page] == []
    assert {flag for flag in re.findall(r"--[a-zA-Z-]*[a-zA-Z]", page) if flag not in " ".join(helps.values())} == set()
    for verb, words in re.findall(r"^\$ longtail (\w+)(.*)", page, re.MULTILINE):
        for flag in re.findall(r" (--[a-zA-Z-]+)", words):
            assert flag in helps[verb], f"longtail {verb} has no {flag}"
