"""The record of a training run: complete, readable, and the same after a trip to disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from longtail.errors import ModelError
from longtail.training import MESSAGES, BlockRecord, Status, Training, combine, is_timing, timed

WHERE = Path("model.json")


def block(items, status, n_iter, seconds=1.0, **figures):
    arrays = {name: np.array(values) for name, values in figures.items()}
    return BlockRecord(np.array(items), np.array(status, np.uint8), np.array(n_iter, np.int32), arrays, seconds)


@pytest.fixture
def record():
    blocks = {1: block([4, 2], [0, 1], [3, 9], 0.5, gap=[0.1, 0.2]), 0: block([0], [2], [7], 0.25, gap=[0.5])}
    item_of = np.array([0, 2, 2, 4])  # units 1 and 2 share one solve
    whole = combine(blocks, "label", item_of, {"C": 1.0, "random_state": 0})
    return timed(whole, wall_seconds=1.5, cpu_seconds=2.5, peak_bytes=3e8)


def test_every_status_has_one_message_and_failures_say_what_to_do():
    assert set(MESSAGES) == set(Status)
    for status in Status:
        assert status.is_success or ";" in status.message, status


def test_blocks_combine_in_the_order_of_the_units(record):
    assert record.status.tolist() == [2, 1, 1, 0]
    assert record.n_iter.tolist() == [7, 9, 9, 3]
    assert record.gap.tolist() == [0.5, 0.2, 0.2, 0.1]
    assert record.block_status.tolist() == [2, 1]
    assert record.block_n_iter.tolist() == [7, 9]
    assert record.block_seconds.tolist() == [0.25, 0.5]
    assert record.converged.tolist() == [False, False, False, True]
    assert record.counts() == {Status.CONVERGED: 1, Status.MAX_ITER: 2, Status.LINE_SEARCH_FAILED: 1}


def test_a_failure_outweighs_a_success_in_the_status_of_a_block():
    mixed = combine({0: block([0, 1], [Status.MAX_ITER, Status.COMPLETED], [1, 1])}, "label", np.arange(2), {})
    assert mixed.block_status.tolist() == [Status.MAX_ITER]


def test_a_single_unit_may_measure_arrays_of_any_length():
    record = combine({0: block([0], [4], [6], history=[1.0, 2.0, 3.0])}, "model", np.zeros(1, np.int64), {})
    assert record.history.tolist() == [1.0, 2.0, 3.0]


def test_messages_count_and_name_the_units(record):
    assert record.messages()[0] == "1 label reached the tolerance"
    assert record.messages()[1].startswith("2 labels stopped at max_iter")
    text = str(record)
    for part in ("2 labels stopped at max_iter", "gap", "C=1.0", "1.5 s, 2.5 s of CPU", "300 MB"):
        assert part in text


def test_unknown_figures_name_the_known_ones(record):
    with pytest.raises(AttributeError, match="no 'recall'; its figures are: gap"):
        _ = record.recall
    assert "gap" in dir(record)


def test_the_record_is_frozen(record):
    with pytest.raises(AttributeError):
        record.unit = "model"


def test_json_values_are_plain(record):
    import json

    about = json.loads(json.dumps(record.as_dict(), allow_nan=False))
    assert about["status"] == {"converged": 1, "max_iter": 2, "line_search_failed": 1}
    assert about["gap"] == [0.5, 0.2, 0.2, 0.1]
    assert about["wall_seconds"] == 1.5


def test_to_disk_and_back(record):
    arrays, meta = record.to_arrays()
    again = Training.from_arrays(arrays, meta, WHERE)
    for name in ("status", "n_iter", "block_status", "block_n_iter", "block_seconds"):
        np.testing.assert_array_equal(getattr(again, name), getattr(record, name))
    np.testing.assert_array_equal(again.gap, record.gap)
    assert again.settings == record.settings
    assert (again.wall_seconds, again.cpu_seconds, again.peak_bytes) == (1.5, 2.5, 3e8)
    assert [name for name in arrays if is_timing(name)] == ["timing_block_seconds"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays, meta: meta.pop("unit"), "must have exactly the members"),
        (lambda arrays, meta: meta.update(unit=3), "member of the wrong type"),
        (lambda arrays, meta: meta["timing"].update(wall_seconds="long"), "wall_seconds of the training record is not"),
        (lambda arrays, meta: arrays.pop("training_status"), "training_status is missing"),
        (lambda arrays, meta: arrays.update(training_n_iter=np.zeros(9, np.int32)), "differ in length"),
        (lambda arrays, meta: arrays.update(training_status=np.full(4, 99, np.uint8)), "that is not a status"),
        (lambda arrays, meta: arrays.update(training_n_iter=np.zeros(4)), "not a 1-d array of int32"),
        (lambda arrays, meta: arrays.update(figure_gap=np.zeros(4, np.uint16)), "figure_gap has dtype"),
    ],
)
def test_a_damaged_record_is_refused(record, change, message):
    arrays, meta = record.to_arrays()
    change(arrays, meta)
    with pytest.raises(ModelError, match=message):
        Training.from_arrays(arrays, meta, WHERE)
