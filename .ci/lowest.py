"""Write a pip constraint `name==bound` for every `name>=bound` that pyproject.toml requires at run time.

    python .ci/lowest.py pyproject.toml > lowest.txt

Tools for developers are left alone: only what users install has to work in its lowest version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def lowest(requirements: list[str]) -> list[str]:
    pinned = []
    for requirement in requirements:
        found = re.fullmatch(r"([A-Za-z0-9._-]+)>=([0-9.]+)", requirement)
        if not found:
            raise SystemExit(f"{requirement!r} in pyproject.toml: expected a name and one lower bound, NAME>=VERSION")
        pinned.append(f"{found[1]}=={found[2]}")
    return pinned


if __name__ == "__main__":
    project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    runtime = project["dependencies"] + project["optional-dependencies"]["demo"]
    sys.stdout.write("\n".join(lowest(runtime)) + "\n")
