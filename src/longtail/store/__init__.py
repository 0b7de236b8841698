"""Models on disk. The folder format is in docs/model-folder.md; `longtail.folder` writes and verifies the files."""

from longtail.store.model import Training, model_size, read_model, write_model

__all__ = ["Training", "model_size", "read_model", "write_model"]
