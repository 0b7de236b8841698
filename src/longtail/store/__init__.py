"""Model folders: how models are stored on disk. `longtail.folder` handles files and checksums. This package handles
their content."""

from longtail.store.card import Card, read_card, write_card
from longtail.store.form import Form, stored_bytes
from longtail.store.index import verify as verify_index
from longtail.store.model import Provenance, index_size, load_model, model_id, model_size, read_model, write_model
from longtail.store.shelf import Shelf

__all__ = [
    "Card",
    "Form",
    "Provenance",
    "Shelf",
    "index_size",
    "load_model",
    "model_id",
    "model_size",
    "read_card",
    "read_model",
    "stored_bytes",
    "verify_index",
    "write_card",
    "write_model",
]
