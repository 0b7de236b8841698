"""The quick tests that `make smoke-lowest` runs on the lowest declared versions."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from sklearn.base import clone

import longtail as lt
from longtail.methods import METHODS
from tests import smoke

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("method", smoke.METHODS)
def test_a_method_trains_predicts_explains_and_is_saved(method, tmp_path):
    smoke.by_python(method, tmp_path)


def test_the_command_line_works(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    smoke.by_command_line(tmp_path)


def test_all_methods_are_tried():
    assert set(smoke.METHODS) == {method.__name__ for method in METHODS.values()}


@pytest.mark.parametrize("method", smoke.METHODS)
def test_a_method_can_be_cloned(method):
    params = smoke.METHODS[method]
    copy = clone(getattr(lt, method)(**params))
    assert {name: copy.get_params()[name] for name in params} == params
