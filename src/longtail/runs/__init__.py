"""Run folders: they keep the progress of a training run, so that it can resume after an interruption."""

from longtail.runs.data import arrays_of, matrices_of
from longtail.runs.data import digest_of as digest_of_data
from longtail.runs.data import read as read_data
from longtail.runs.data import write as write_data
from longtail.runs.identity import Identity, digest, plain, versions
from longtail.runs.run import Parts, Receipt, Run
from longtail.runs.status import RunStatus, status, within

__all__ = [
    "Identity",
    "Parts",
    "Receipt",
    "Run",
    "RunStatus",
    "arrays_of",
    "digest",
    "digest_of_data",
    "matrices_of",
    "plain",
    "read_data",
    "status",
    "versions",
    "within",
    "write_data",
]
