"""Ten thousand damaged model folders: each is refused with an error that names the file, none crashes or hangs."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from longtail.errors import ModelError
from longtail.store import read_model
from tests.store.samples import hashed_model, number_model, plain_model, save, sharded_model, text_model

SEED = 20240229
HEADER = 128


@pytest.fixture(params=[text_model, number_model, hashed_model, sharded_model])
def root(request, memory_path) -> Path:
    return save(memory_path / "m", request.param(), index=request.param is number_model)


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A damaged folder takes a millisecond; two minutes for all those of a test mean that one of them hangs."""
    previous = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("loading a damaged folder hangs"))
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def assert_all_refused(root: Path, damages: Iterator[tuple[Path, bytes]]) -> int:
    """Write each damage, try to load, restore; the number of them."""
    count = 0
    for path, raw in damages:
        sound = path.read_bytes()
        assert raw != sound
        path.write_bytes(raw)
        error = error_of(root, mmap=count % 2 == 0)
        assert error.path in (str(path), str(root / "model.json"))
        assert "\n" not in error.reason
        path.write_bytes(sound)
        count += 1
    read_model(root)
    return count


def error_of(root: Path, mmap: bool) -> ModelError:
    try:  # pytest.raises does the same in three times the time
        read_model(root, mmap=mmap)
    except ModelError as error:
        return error
    raise AssertionError(f"a damaged folder was loaded: {root}")


def flipped(raw: bytes, bit: int) -> bytes:
    at, mask = bit // 8, 1 << bit % 8
    return raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]


def files(root: Path) -> list[Path]:
    return sorted(root.iterdir())


def test_a_flipped_bit_in_every_byte_of_headers_and_manifest(root):
    rng = random.Random(SEED)

    def damages():
        for path in files(root):
            raw = path.read_bytes()
            for at in range(len(raw) if path.suffix == ".json" else HEADER):
                yield path, flipped(raw, 8 * at + rng.randrange(8))

    sizes = sum(path.stat().st_size if path.suffix == ".json" else HEADER for path in files(root))
    assert assert_all_refused(root, damages()) == sizes > 1000


def test_every_bit_of_every_value(root):
    def damages():
        for path in files(root):
            raw = path.read_bytes()
            if path.suffix == ".npy":
                for bit in range(8 * HEADER, 8 * len(raw)):
                    yield path, flipped(raw, bit)

    assert assert_all_refused(root, damages()) >= 8 * 76


def test_bytes_changed_cut_added_or_zeroed(root):
    rng = random.Random(SEED)

    def damages():
        for path in files(root):
            raw = path.read_bytes()
            for _ in range(10):
                at = rng.randrange(len(raw))
                length = rng.randrange(1, len(raw) + 1 - at)
                noise = rng.randbytes(length)
                yield path, raw[:at] + bytes([raw[at] ^ rng.randrange(1, 256)]) + raw[at + 1 :]
                yield path, raw[:at]  # cut off
                yield path, raw[:at] + raw[at + length :]  # a hole
                yield path, raw + rng.randbytes(rng.randrange(1, 600))
                yield path, raw[:at] + noise + raw[at:]
                if noise != raw[at : at + length]:
                    yield path, raw[:at] + noise + raw[at + length :]
            yield path, b""
            yield path, raw + b"\0"
            yield path, raw + b"\n"
            yield path, raw + raw
            for at in range(0, len(raw), 64):
                zeroed = raw[:at] + bytes(len(raw[at : at + 64])) + raw[at + 64 :]
                if zeroed != raw:
                    yield path, zeroed

    assert assert_all_refused(root, damages()) > 600


def test_a_number_or_letter_changed_in_the_manifest(root):
    rng = random.Random(SEED)
    path = root / "model.json"

    def damages():
        raw = path.read_bytes()
        for at, byte in enumerate(raw):
            if chr(byte).isdigit():
                yield path, raw[:at] + str((byte - 48 + rng.randrange(1, 10)) % 10).encode() + raw[at + 1 :]
            elif chr(byte).isalpha():
                yield path, raw[:at] + bytes([byte ^ 32]) + raw[at + 1 :]
            else:
                yield path, raw[:at] + raw[at + 1 :]

    assert assert_all_refused(root, damages()) > 500


def test_files_of_another_model(root, tmp_path):
    """Each array file replaced by those of a model which differs in its values, then by every other file of its own."""
    strangers = [path.read_bytes() for path in files(save(tmp_path / "other", plain_model(seed=1)))]
    own = [path.read_bytes() for path in files(root)]

    def damages():
        for path in files(root):
            if path.suffix == ".npy":
                sound = path.read_bytes()
                yield from ((path, raw) for raw in (*strangers, *own) if raw != sound)

    assert assert_all_refused(root, damages()) > 50


def test_the_manifest_of_another_model(root, tmp_path):
    other = save(tmp_path / "other", plain_model(seed=1))
    shutil.copy(other / "model.json", root / "model.json")
    with pytest.raises(ModelError, match="cannot be opened: No such file or directory") as caught:
        read_model(root)
    assert Path(caught.value.path).name.startswith("W_data-")


def test_missing_files_and_things_that_are_no_files(root, tmp_path):
    for path in files(root):
        sound = path.read_bytes()
        (tmp_path / "copy").write_bytes(sound)

        def absent(path=path):
            path.unlink(missing_ok=True)

        makers = (
            absent,
            path.mkdir,
            lambda path=path: path.symlink_to(tmp_path / "copy"),
            lambda path=path: path.symlink_to(path.name),
            lambda path=path: path.symlink_to("/dev/zero"),
            lambda path=path: os.mkfifo(path),
        )
        for make in makers:
            path.unlink()
            make()
            with pytest.raises(
                ModelError, match=r"holds no model\.json|is not a plain file|cannot be opened"
            ) as caught:
                read_model(root)
            assert Path(caught.value.path) in (path, root)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            path.write_bytes(sound)
    read_model(root)
