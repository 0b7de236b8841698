"""All benchmarks, one after the other: `make bench`, or `python benchmarks/run.py FOLDER ...` with data of your own.

Without folders: parser speed on a synthetic file, quality, starts and MACH on the ICD-10-CM corpus, prediction on its
model, MEMOIR's oracles on synthetic rows.
With folders (`train.txt` and `test.txt` each): quality, other systems, starts, growth and PD-Sparse on them as well,
and the optimisers of MACH on the first.
Results go to bench-output/. `make papers` makes the tables and figures of the papers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(script: str, *arguments: str) -> None:
    sys.stdout.write(f"\n== {script} {' '.join(arguments)}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, HERE / script, *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--pecos-python", help="interpreter of an environment with libpecos, for peers.py")
    options = parser.parse_args()
    output = Path("bench-output")
    output.mkdir(exist_ok=True)
    run("parse.py")
    run("quality.py", *options.folders, "--json", str(output / "quality.json"))
    run("predict.py")
    run("mach.py", "predict")
    for what in ("grid", "speed"):
        run("mach.py", what, *options.folders)
    if options.folders:
        pecos = ["--pecos-python", options.pecos_python] if options.pecos_python else []
        run("peers.py", *options.folders, *pecos, "--json", str(output / "peers.json"))
        run("growth.py", *options.folders)
        run("mach.py", "optimisers", *options.folders[:1])
        run("pd_sparse.py", "table", *options.folders, "--json", str(output / "pd-sparse.json"))
        run("pd_sparse.py", "curve", *options.folders)
        run("pd_sparse.py", "growth", *options.folders)
        run("pd_sparse.py", "threads", *options.folders)
    run("oracles.py", *options.folders[:1], "--plot", str(output / "oracles.png"))
    run("oracles.py", *options.folders[:1], "--threads", "--classes", "18000")


if __name__ == "__main__":
    main()
