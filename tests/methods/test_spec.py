"""Parameters with options: "name:option=value"."""

from __future__ import annotations

from typing import Literal

import pytest

from longtail.errors import InputError
from longtail.methods.spec import option_types, parse


class Walk:
    def __init__(self, graph: object, *, links: int = 8, drift: float = 1.0, augment: bool | None = None) -> None: ...


def scan(*, stop: Literal["loose", "strict"] = "loose") -> None: ...


CHOICES = {"walk": Walk, "scan": scan, "none": lambda: None}
WHERE = "The 'oracle' parameter of Memoir"


def test_options_are_the_keyword_only_parameters():
    assert list(option_types(Walk)) == ["links", "drift", "augment"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("walk", ("walk", {})),
        ("walk:links=4", ("walk", {"links": 4})),
        ("walk: drift = 0.5, augment=yes", ("walk", {"drift": 0.5, "augment": True})),
        ("walk:augment=no", ("walk", {"augment": False})),
        ("scan:stop=strict", ("scan", {"stop": "strict"})),
        ("none", ("none", {})),
    ],
)
def test_texts_that_are_read(text, wanted):
    assert parse(text, CHOICES, WHERE) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run", "must be one of 'walk', 'scan', 'none'. Got 'run'"),
        (None, "must be one of 'walk', 'scan', 'none'. Got None"),
        ("walk:", "'walk' takes 'links' and 'drift' and 'augment'"),
        ("none:x=1", "'none' takes no options"),
        ("walk:links=2.5", "the option 'links' must be a whole number. Got '2.5'"),
        ("walk:drift=nan", "the option 'drift' must be a number. Got 'nan'"),
        ("walk:augment=1", "the option 'augment' must be 'yes' or 'no'. Got '1'"),
        ("scan:stop=now", "the option 'stop' must be 'loose' or 'strict'. Got 'now'"),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(InputError, match=WHERE) as raised:
        parse(text, CHOICES, WHERE)
    assert message in str(raised.value)
