"""Does an installation work? Train, predict, explain, save and load, by Python and by the command line, on six texts.

    python -I tests/smoke.py

Needs nothing but longtail and what it requires, so that it can be run in an environment without the tests' own tools.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TEXTS = [
    ("chest pain on breathing", ["heart", "lung"]),
    ("cough and shortness of breath", ["lung"]),
    ("irregular heart beat", ["heart"]),
    ("fracture of the left wrist", ["bone"]),
    ("bruised rib after a fall", ["bone"]),
    ("pain in the chest after exercise", ["heart"]),
]
METHODS = {
    "OneVsAll": {},
    "Mach": {"n_buckets": 4, "n_repetitions": 3},
    "Memoir": {},
    "PDSparse": {},
}


def write_csv(path: Path) -> None:
    lines = [f"{text},{';'.join(labels)}" for text, labels in TEXTS]
    path.write_text("\n".join(["text,labels", *lines]) + "\n", encoding="utf-8")


def by_python(method: str, folder: Path) -> None:
    """Fit one method, and compare its answers with those of the model that was saved and loaded."""
    import longtail as lt

    write_csv(folder / "texts.csv")
    data = lt.read(folder / "texts.csv", label_separator=";")
    clf = getattr(lt, method)(**METHODS[method]).fit(data)
    top = clf.predict_topk(data, k=2)
    assert top.labels.shape == (len(TEXTS), 2)
    assert sorted(clf.classes_) == ["bone", "heart", "lung"]
    clf.save(folder / method)
    loaded = lt.load(folder / method)
    assert (loaded.predict_topk(data, k=2).scores == top.scores).all()
    assert "wrist" in str(loaded.explain("fracture of the wrist", label="bone"))
    assert lt.metrics.evaluate(data.Y, top)["P@1"] > 0.5


def by_command_line(folder: Path) -> None:
    write_csv(folder / "texts.csv")

    def longtail(*words: str) -> str:
        done = subprocess.run(["longtail", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"longtail {' '.join(words)}: {done.stderr}"
        return done.stdout

    assert "train" in longtail("--help")
    assert "--max-iter" in longtail("train", "--help")
    longtail("train", "texts.csv", "model", "--label-separator", ";")
    assert "bone" in longtail("predict", "model", "--text", "fracture of the wrist")
    assert "wrist" in longtail("explain", "model", "--text", "fracture of the wrist")
    assert "P@1" in longtail("evaluate", "model", "texts.csv", "--label-separator", ";")
    assert "one-vs-all" in longtail("inspect", "model")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        for method in METHODS:
            by_python(method, Path(place))
        by_command_line(Path(place))
    sys.stdout.write("The installation works.\n")


if __name__ == "__main__":
    main()
