from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.service import Running, save, save_card, text_model, vector_model


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders: texts (with a card), other (of texts), vectors."""
    root = tmp_path_factory.mktemp("served")
    save(root / "texts", text_model())
    save_card(root / "texts")
    save(root / "other", text_model(2.0))
    save(root / "vectors", vector_model())
    return root


@pytest.fixture(scope="session")
def service(folders: Path) -> Iterator[Running]:
    """A service with the default limits."""
    running = Running(str(folders / "texts"), str(folders / "other"), str(folders / "vectors"), "--workers", "2")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def strict(folders: Path) -> Iterator[Running]:
    """A service with small limits, so that they can be reached."""
    limits = {
        "max-body": "20000",
        "header-timeout": "1",
        "body-timeout": "1",
        "write-timeout": "1",
        "keep-alive": "1",
        "max-connections": "20",
        "max-rows": "10",
        "max-text": "1000",
        "max-top-k": "50",
        "max-labels": "3",
        "max-features": "5",
        "max-queue-bytes": "40000",
    }
    words = [word for name, value in limits.items() for word in (f"--{name}", value)]
    running = Running(str(folders / "texts"), str(folders / "vectors"), "--workers", "1", *words)
    yield running
    running.stop()
