"""Folders with valid checksums and absurd content: each is a ModelError, and no number in them takes memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import longtail
from longtail.errors import ModelError
from longtail.store import read_model
from tests.store.forge import Forgery, sealed
from tests.store.samples import hashed_model, number_model, plain_model, save, text_model

MAX = 2**63 - 1
BIG = (2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**61, 2**62, MAX, 2**63, 2**64, 10**30)


class Bomb:
    """Unpickling it would leave a mark."""

    def __reduce__(self):
        return (os.mkdir, ("pickle-was-run",))


def entry(name: str, **members):
    return lambda f: f.entries[name].update(members)


def meta(**members):
    return lambda f: f.meta.update(members)


def values(name: str, change):
    return lambda f: f.edit(name, change)


def put(name: str, *arguments):
    return lambda f: f.put(name, *arguments)


def at(*assignments):
    """Write single values into an array in place."""

    def change(array):
        for place, value in assignments:
            array[place] = value

    return change


def both(*changes):
    def change(f):
        for one in changes:
            one(f)

    return change


def rename(name: str, file: str):
    """The entry points to another place, where a copy of the right bytes lies waiting."""

    def change(f):
        target = f.root / f.entries[name]["file"]
        if "\0" not in file and not os.path.lexists(f.root / file):
            (f.root / file).parent.mkdir(exist_ok=True, parents=True)
            (f.root / file).write_bytes(target.read_bytes())
        f.entries[name]["file"] = file

    return change


def call(name: str, new: str):
    """An array under another name."""
    return lambda f: f.entries.update({new: f.entries.pop(name)})


SIZE = "has a size that is not a whole number from 0 to 2"
UNBACKED = r"bytes cannot hold shape|but the manifest promises|has a size that is not"
PLACE = "names the file .*, not <entry>-<crc32>.npy"
HEADER = "its header does not describe"

MANIFEST = {
    **{f"shape {n}": (entry("W_data", shape=[n]), UNBACKED) for n in BIG},
    **{f"shape 0 x {n}": (entry("W_data", shape=[0, n]), f"{UNBACKED}|cannot be read|{HEADER}") for n in BIG},
    **{f"bytes {n}": (entry("W_data", bytes=n), UNBACKED) for n in (0, 1, 127, 128, *BIG)},
    **{f"shape and bytes {n}": (entry("W_data", shape=[n], bytes=4 * n + 128), UNBACKED) for n in BIG},
    "shape times wraps": (entry("W_data", shape=[4194305, 4194305]), UNBACKED),
    "product overflows to the right size": (entry("W_data", shape=[2**32, 2**32]), UNBACKED),
    "shape negative": (entry("W_data", shape=[-1]), SIZE),
    "bytes negative": (entry("W_data", bytes=-140), SIZE),
    "crc negative": (entry("W_data", crc32=-1), SIZE),
    "shape of floats": (entry("W_data", shape=[11.0]), SIZE),
    "shape of booleans": (entry("W_data", shape=[True]), SIZE),
    "shape of strings": (entry("W_data", shape=["11"]), SIZE),
    "shape null": (entry("W_data", shape=None), "must have a shape of one or two numbers"),
    "shape empty": (entry("W_data", shape=[]), "must have a shape of one or two numbers"),
    "shape of three": (entry("W_data", shape=[11, 1, 1]), "must have a shape of one or two numbers"),
    "shape of 10^4": (entry("W_data", shape=[1] * 10_000), "must have a shape of one or two numbers"),
    "crc differs from name": (entry("W_data", crc32=5), "has a crc32 that differs from the one in its file name"),
    "dtype object": (entry("W_data", dtype="|O"), "has dtype '.O'; allowed are <f4, <f8, <i4, <i8, .u1"),
    "dtype big-endian": (entry("W_data", dtype=">f4"), "has dtype '>f4'; allowed are"),
    "dtype null": (entry("W_data", dtype=None), "has dtype None; allowed are"),
    "dtype list": (entry("W_data", dtype=[["a", "<f4"]]), r"has dtype \[\['a', '<f4'\]\]; allowed are"),
    "dtype string of 10^4": (entry("W_data", dtype="<f4" * 10_000), r"has dtype '<f4.*\.\.\.; allowed are"),
    "entry null": (lambda f: f.entries.update(W_data=None), "must have exactly the members bytes, crc32, dtype, file"),
    "entry with too much": (entry("W_data", extra=1), "must have exactly the members"),
    "entry with too little": (lambda f: f.entries["W_data"].pop("shape"), "must have exactly the members"),
    "name ..": (rename("W_data", "../W_data-00000000.npy"), PLACE),
    "name in a folder": (rename("W_data", "deeper/W_data-00000000.npy"), PLACE),
    "name ./": (lambda f: entry("W_data", file="./" + f.entries["W_data"]["file"])(f), PLACE),
    "name absolute": (rename("W_data", "/etc/passwd"), PLACE),
    "name with NUL": (rename("W_data", "W_data-00000000.npy\0"), PLACE),
    "name with newline": (rename("W_data", "W_data-00000000.npy\n"), PLACE),
    "name with backslash": (rename("W_data", "..\\W_data-00000000.npy"), PLACE),
    "name of a device": (rename("W_data", "CON"), PLACE),
    "name in capitals": (rename("W_data", "W_data-ABCDEF00.npy"), PLACE),
    "name of the manifest": (rename("W_data", "model.json"), PLACE),
    "name a number": (entry("W_data", file=7), PLACE),
    "name null": (entry("W_data", file=None), PLACE),
    "name of 10^4": (entry("W_data", file="a" * 10_000), PLACE),
    "one file for two arrays": (
        lambda f: f.entries.update(W_indices=f.entries["W_data"]),
        "entry 'W_indices' names the file 'W_data-",
    ),
    "array name with ..": (call("W_data", "../W_data"), PLACE),
    "array name of 10^4": (call("W_data", "a" * 10_000), PLACE),
    "10^5 entries": (
        lambda f: f.entries.update({f"a{i}": 1 for i in range(100_000)}),
        "lists 100,00. arrays; at most 4,096|is larger than 1,048,576 bytes",
    ),
    "4,097 entries": (
        lambda f: f.entries.update({f"a{i}": 1 for i in range(4097 - len(f.entries))}),
        "lists 4,097 arrays; at most 4,096 are allowed",
    ),
    "arrays a list": (lambda f: f.body.update(arrays=[]), "lacks the members 'meta' and 'arrays'"),
    "meta null": (lambda f: f.body.update(meta=None), "lacks the members 'meta' and 'arrays'"),
    "meta absent": (lambda f: f.body.pop("meta"), "lacks the members 'meta' and 'arrays'"),
    "format of the future": (
        lambda f: f.body.update(format=2),
        "has format 2, but this version reads format 1; upgrade",
    ),
    "format huge": (lambda f: f.body.update(format=10**4000), "has format a huge number, but this version reads"),
    "format text": (lambda f: f.body.update(format="1" * 10_000), r"has format '1111.*\.\.\., but this version"),
    "format absent": (lambda f: f.body.pop("format"), "has format None, but"),
    "another kind": (lambda f: f.body.update(kind="dataset"), "describes a 'dataset', not a model"),
    "kind absent": (lambda f: f.body.pop("kind"), "describes a None, not a model"),
    "kind a list": (lambda f: f.body.update(kind=["model"] * 10_000), r"describes a \['model', .*\.\.\., not a model"),
}

FILES = {
    "big-endian file": (lambda f: f.header("W_data", b"'<f4'", b"'>f4'"), HEADER),
    "Fortran order": (lambda f: f.header("W_data", b"False", b"True"), HEADER),
    "object header": (lambda f: f.header("W_data", b"'<f4'", b"'|O'"), HEADER),
    "another type of one size": (lambda f: f.header("W_data", b"'<f4'", b"'<i4'"), HEADER),
    "another shape of one size": (lambda f: f.header("W_data", b"(11,)", b"(1, 11)"), HEADER),
    "longer header shape": (lambda f: f.header("W_data", b"(11,)", b"(9999999999,)"), HEADER),
    "header with code": (lambda f: f.header("W_data", b"False", b"__import__('os').mkdir('x')"), HEADER),
    "header nested": (lambda f: f.header("W_data", b"(11,)", b"(" * 60), HEADER),
    "header too much": (lambda f: f.header("W_data", b", }", b", 'x': 1, }"), HEADER),
    "header of version 2": (lambda f: f.header("W_data", b"NUMPY\x01", b"NUMPY\x02"), HEADER),
    "no header": (lambda f: f.put_bytes("W_data", bytes(172)), HEADER),
    "header not a multiple of 64": (
        lambda f: f.put_bytes("W_data", (f.root / f.entries["W_data"]["file"]).read_bytes() + b"\0"),
        "bytes cannot hold shape",
    ),
    "header of a megabyte": (
        lambda f: f.put_bytes("W_data", bytes(2**20) + (f.root / f.entries["W_data"]["file"]).read_bytes()),
        "bytes cannot hold shape",
    ),
    "no values in a shape beyond NumPy": (
        lambda f: (
            f.put("W_data", np.zeros((0, 1), np.float32)),
            f.header("W_data", b"(0, 1)", b"(0, 2305843009213693952)"),
            entry("W_data", shape=[0, 2**61])(f),
        ),
        "shape .0, 2305843009213693952. of float32 cannot be read",
    ),
    "pickle": (lambda f: f.put("W_data", np.array([Bomb()], dtype=object)), "has dtype '.O'; allowed are"),
    "pickle under a false type": (
        lambda f: (f.put("W_data", np.array([Bomb()], dtype=object)), entry("W_data", dtype="<f4", shape=[1])(f)),
        f"bytes cannot hold|{HEADER}",
    ),
}

SPAN = "W_indptr does not span 4 rows and 11 entries"
CONTENT = {
    "data of another type": (values("W_data", lambda a: a.astype(np.float64)), "W_data has dtype <f8 and 1 dimensions"),
    "data of two dimensions": (
        values("W_data", lambda a: a[None]),
        "W_data has dtype <f4 and 2 dimensions, not <f4 and 1",
    ),
    "indices of another type": (values("W_indices", lambda a: a.astype(np.int64)), "array W_indices has dtype <i8"),
    "indptr of another type": (values("W_indptr", lambda a: a.astype(np.int32)), "array W_indptr has dtype <i4"),
    "data absent": (lambda f: f.entries.pop("W_data"), "lists no array W_data"),
    "data short": (values("W_data", lambda a: a[:-1]), "W_data has 10 values for 11 indices"),
    "data long": (values("W_data", lambda a: np.append(a, a)), "W_data has 22 values for 11 indices"),
    "data empty": (put("W_data", [], np.float32), "W_data has 0 values for 11 indices"),
    "NaN": (values("W_data", at((3, np.nan))), "W_data holds NaN or infinity"),
    "infinity": (values("W_data", at((0, -np.inf))), "W_data holds NaN or infinity"),
    "indices short": (values("W_indices", lambda a: a[:-1]), "W_indptr does not span 4 rows and 10 entries"),
    "index one too large": (values("W_indices", at((-1, 6))), "W_indices leaves the range 0 to 5"),
    "index huge": (values("W_indices", at((0, 2**31 - 1))), "W_indices leaves the range 0 to 5"),
    "index negative": (values("W_indices", at((0, -1))), "W_indices leaves the range 0 to 5"),
    "indices unsorted": (values("W_indices", at((0, 5), (1, 0))), "W_indices are not sorted and unique within a row"),
    "indices repeated": (values("W_indices", at((1, 0), (0, 0))), "W_indices are not sorted and unique within a row"),
    "indptr starts late": (values("W_indptr", at((0, 1))), SPAN),
    "indptr ends early": (values("W_indptr", at((-1, 5))), SPAN),
    "indptr ends late": (values("W_indptr", at((-1, 10**12))), SPAN),
    "indptr decreases": (values("W_indptr", at((1, 9), (2, 4))), "W_indptr decreases"),
    "indptr negative": (values("W_indptr", at((1, -1))), "W_indptr decreases"),
    "indptr huge in between": (values("W_indptr", at((1, MAX))), "W_indptr decreases"),
    "indptr wraps around": (
        both(put("W_indptr", [0, MAX, -MAX - 1, -(2**62), 0, 11]), meta(n_labels=5)),
        "W_indptr decreases",
    ),
    "indptr empty": (put("W_indptr", [], np.int64), "W_indptr does not span"),
    "no rows, but a weight": (both(put("W_indptr", [0]), meta(n_labels=0)), "does not span 0 rows and 11 entries"),
    **{f"n_labels {n}": (meta(n_labels=n), "does not span|cannot all be true") for n in (0, 3, 5, -1, *BIG)},
    **{f"n_features {n}": (meta(n_features=n), "leaves the range|cannot all be true") for n in (0, 3, -1, *BIG)},
    "n_labels true": (meta(n_labels=True), "member 'n_labels' is missing or of the wrong type"),
    "n_labels float": (meta(n_labels=4.0), "member 'n_labels' is missing or of the wrong type"),
    "n_features null": (meta(n_features=None), "member 'n_features' is missing or of the wrong type"),
    "n_features absent": (lambda f: f.meta.pop("n_features"), "member 'n_features' is missing"),
    "bias negative": (meta(bias=-1.0), "cannot all be true"),
    "bias text": (meta(bias="1"), "member 'bias' is missing or of the wrong type"),
    "bias a huge whole number": (meta(bias=10**400), "member 'bias' is missing or of the wrong type"),
    "bias off": (meta(bias=0.0), "leaves the range"),
    "multiclass 1": (meta(multiclass=1), "member 'multiclass' is missing or of the wrong type"),
    "method a number": (meta(method=3), "member 'method' is missing or of the wrong type"),
    "another kind of model": (
        meta(model="tree"),
        "a kind that this version lacks; it knows linear, compact",
    ),
    "model a number": (meta(model=1), "member 'model' is missing or of the wrong type"),
    "hashed without arrays": (
        meta(model="hashed", n_buckets=2, link="softmax", aggregate="mean"),
        "lists no array hash_seeds",
    ),
    "params a list": (meta(params=[]), "member 'params' is missing or of the wrong type"),
    "names of a strange kind": (meta(label_names="pickle"), "member 'label_names' must be null, 'range'"),
    "names a list": (meta(label_names=["a"]), "member 'label_names' must be null, 'range'"),
    "names without array": (meta(label_names="int"), "lists no array label_names"),
    "names without strings": (meta(label_names="str"), "lists no array label_names_utf8"),
    "names too few": (both(meta(label_names="int"), put("label_names", [1, 2, 3])), "has 3 label names for 4"),
    "names of floats for int": (
        both(meta(label_names="int"), put("label_names", [1.0] * 4)),
        "label_names has dtype <f8 and 1 dimensions, not <i8 and 1",
    ),
    "features in a range": (meta(feature_names="range"), "member 'feature_names' must be null, 'range' .of labels."),
    "pipeline a list": (meta(text_features=[]), "text features must have exactly the parameters"),
    "pipeline a word": (meta(text_features="tfidf"), "text features must have exactly the parameters"),
}

TEXT = {
    "names cut in a character": (put("label_names_offsets", [0, 2, 3, 3]), "label_names_utf8 is not UTF-8"),
    "offsets decrease": (put("label_names_offsets", [0, 2, 1, 3]), "label_names_offsets does not divide 3 bytes"),
    "offsets short": (put("label_names_offsets", [0, 3]), "has 1 label names for 3"),
    "offsets end late": (put("label_names_offsets", [0, 1, 3, 10**12]), "label_names_offsets does not divide 3 bytes"),
    "offsets empty": (put("label_names_offsets", [], np.int64), "label_names_offsets does not divide 3 bytes"),
    "offsets wrap around": (
        put("label_names_offsets", [0, MAX, -MAX - 1, -(2**62), 0, 3]),
        "label_names_offsets does not divide 3 bytes",
    ),
    "bytes not UTF-8": (put("label_names_utf8", [255, 254, 253], np.uint8), "label_names_utf8 is not UTF-8"),
    "names absent": (lambda f: f.entries.pop("label_names_utf8"), "lists no array label_names_utf8"),
    "more features than the pipeline": (
        meta(n_features=5),
        "the text pipeline makes 4 features, but the model has 5",
    ),
    "vocabulary absent": (
        lambda f: f.entries.pop("text_vocabulary_utf8"),
        "lists no array text_vocabulary_utf8",
    ),
    "a term twice": (
        put("text_vocabulary_utf8", np.zeros(19, np.uint8) + 97),
        "text_vocabulary",
    ),
    "idf NaN": (values("text_idf", at((0, np.nan))), "text_idf holds NaN or infinity"),
    "idf short": (values("text_idf", lambda a: a[:-1]), "text_idf has 3 weights for 4 features"),
    "idf absent": (lambda f: f.entries.pop("text_idf"), "lists no array text_idf"),
    "pattern": (lambda f: f.meta["text_features"].update(token_pattern="(a+)+$"), "must have exactly the parameters"),
    "ngrams huge": (
        lambda f: f.meta["text_features"].update(ngram_range=[1, 10**9]),
        "text features cannot be used: The 'ngram_range'",
    ),
    "kind strange": (lambda f: f.meta["text_features"].update(kind="eval"), "text features cannot be used: The 'kind'"),
    "hashing into more columns": (
        lambda f: f.meta["text_features"].update(kind="hashing", use_idf=False, n_features=2**30),
        "the text pipeline makes 1073741824 features, but the model has 4",
    ),
}


def assert_refused(root: Path, forge, message: str) -> None:
    forgery = Forgery(root)
    forge(forgery)
    forgery.seal()
    for mmap in (True, False):
        with pytest.raises(ModelError, match=message) as caught:
            read_model(root, mmap=mmap)
        assert Path(caught.value.path).parent == root  # a file in the folder, never another
        assert len(str(caught.value)) < 500
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*MANIFEST, *FILES, *CONTENT])
def test_a_forged_folder_is_refused(memory_path, monkeypatch, name):
    monkeypatch.chdir(memory_path)  # where a pickle would leave its mark
    forge, message = {**MANIFEST, **FILES, **CONTENT}[name]
    assert_refused(save(memory_path / "m", plain_model()), forge, message)
    assert [path.name for path in memory_path.iterdir() if path.name not in ("m", "W_data-00000000.npy")] == []


@pytest.mark.parametrize("name", TEXT)
def test_a_forged_text_model_is_refused(memory_path, name):
    assert_refused(save(memory_path / "m", text_model()), *TEXT[name])


def test_the_forger_can_also_leave_a_folder_sound(memory_path):
    """Otherwise the tests above would prove nothing."""
    for make in (plain_model, text_model, number_model, hashed_model):
        root = save(memory_path / make.__name__, make())
        before = (root / "model.json").read_bytes()
        forgery = Forgery(root)
        for name in list(forgery.entries):
            forgery.put(name, forgery.array(name))
            forgery.header(name, b"NUMPY", b"NUMPY")
        forgery.seal()
        assert (root / "model.json").read_bytes() == before
        read_model(root)


@pytest.mark.parametrize(
    "text",
    [
        b'{"format": NaN}',
        b'{"format": 1, "format": 1}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"1" * 100_000,
        b"[]",
        b"null",
        b'"~crc32"',
        b'{"~crc32": 0}',
        b'{"~crc32": true}',
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'{"a": "\xed\xa0\x80"}',
        b"{" + b" " * 2**20 + b"}",
    ],
    ids=range(14),
)
def test_manifests_that_are_none(memory_path, text):
    root = save(memory_path / "m", plain_model())
    (root / "model.json").write_bytes(text)
    with pytest.raises(ModelError, match=r"is damaged or was edited by hand|is larger than 1,048,576 bytes"):
        read_model(root)


def test_a_sealed_manifest_that_says_nan(memory_path):
    root = save(memory_path / "m", plain_model())
    forgery = Forgery(root)
    forgery.meta["bias"] = float("nan")
    forgery.seal()
    with pytest.raises(ModelError, match="is damaged or was edited by hand"):
        read_model(root)


def test_a_valid_manifest_in_another_spelling(memory_path):
    root = save(memory_path / "m", plain_model())
    (root / "model.json").write_text(json.dumps(json.loads((root / "model.json").read_bytes())))
    with pytest.raises(ModelError, match="is damaged or was edited by hand"):
        read_model(root)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(BIG) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=JSON)
def test_any_value_in_any_place_is_refused_or_changes_nothing(memory_path, data, value):
    """One member anywhere in the manifest is exchanged and the seal renewed: an error, or the same weights."""
    root = memory_path / "m"
    model = number_model()
    if not root.exists():
        save(root, model)
    sound = (root / "model.json").read_bytes()
    forgery = Forgery(root)
    place = forgery.body
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    (root / "model.json").write_bytes(sealed(forgery.body))
    found, error = loaded(root)
    (root / "model.json").write_bytes(sound)
    if error is None:
        for name in ("data", "indices", "indptr"):  # not the shape: a forged bias adds a column without weights
            assert np.array_equal(getattr(found.W, name), getattr(model.W, name))
    else:
        assert Path(error.path).parent == root


def loaded(root: Path):
    try:
        return read_model(root)[0], None
    except ModelError as error:
        return None, error


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"C": -1},
            "has parameters that OneVsAll does not take: The 'C' parameter of OneVsAll must be a number above 0",
        ),
        ({"C": 10**400}, "The 'C' parameter of OneVsAll must be a number above 0"),
        ({"C": None}, "The 'C' parameter"),
        ({"loss": ["hinge"]}, "The 'loss' parameter of OneVsAll must be one of"),
        ({"max_iter": 2.5}, "The 'max_iter' parameter"),
        ({"colour": "red"}, "does not take: .*colour"),
        ({"self": 1}, "does not take"),
        ({"": 1}, "does not take"),
    ],
)
def test_parameters_that_the_method_does_not_take(memory_path, params, message):
    root = save(memory_path / "m", plain_model())
    forgery = Forgery(root)
    forgery.meta["params"] = params
    forgery.seal()
    with pytest.raises(ModelError, match=message):
        longtail.load(root)


def test_a_method_of_the_future(memory_path):
    root = save(memory_path / "m", plain_model())
    forgery = Forgery(root)
    forgery.meta["method"] = "oracle"
    forgery.seal()
    with pytest.raises(ModelError, match="was trained by the method 'oracle', which this version lacks"):
        longtail.load(root)


LYING = """
import resource, sys
from longtail.errors import ModelError
from longtail.store import read_model
if sys.platform == "linux":  # the limit is not kept elsewhere
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
for root in sys.argv[1:]:
    try:
        read_model(root)
    except ModelError as error:
        print(error.reason)
"""


def test_numbers_that_lie_take_no_memory(memory_path):
    """With 64 MB left, each of these is still an error about the folder, not about memory."""
    lies = [
        entry("W_data", shape=[2**40], bytes=2**42 + 128),
        entry("W_data", shape=[2**31 - 1, 2**30]),
        meta(n_labels=2**31 - 1),
        both(meta(n_features=2**31 - 2, feature_names="range")),
        both(meta(label_names="str"), put("label_names_offsets", [0, 2**40]), put("label_names_utf8", [97], np.uint8)),
    ]
    roots = []
    for i, lie in enumerate(lies):
        roots.append(save(memory_path / str(i), plain_model()))
        forgery = Forgery(roots[-1])
        lie(forgery)
        forgery.seal()
    command = [sys.executable, "-c", LYING, *map(str, roots)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.splitlines()) == len(lies), answer.stdout
    assert "memory" not in answer.stdout.lower()
