"""`longtail runs FOLDER`: show the state of a training run, also while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.output import say, say_json
from longtail.cli.reading import Json
from longtail.words import duration, size

if TYPE_CHECKING:
    from longtail.runs import RunStatus

SHOWN = 5  # failures that are printed


def runs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder that --run named.")],
    json: Json = False,
) -> None:
    """Show how the training run in FOLDER is doing.

    Progress, speed, time left, attempts and failures; also while it runs.
    """
    from longtail.runs import status, within

    found = {str(root): status(root) for root in within(folder)}  # a calibrated fit is several runs
    if json:
        shown = [_for_programs(root, each) for root, each in found.items()]
        say_json(shown[0] if len(shown) == 1 else shown)
    else:
        say("\n\n".join(str(_for_people(root, each)) for root, each in found.items()))


def _for_programs(folder: str, found: RunStatus) -> dict[str, Any]:
    left = found.seconds_left
    return {
        "run": folder,
        "state": found.state,
        "holder": found.holder,
        **found.identity.get("method", {}),
        "blocks": found.n_blocks,
        "blocks_done": found.n_done,
        "share": round(found.share, 6),
        "bytes": found.bytes,
        "workers": found.log.workers,
        "sessions": found.log.sessions,
        "seconds_left": None if left is None or not math.isfinite(left) else round(left, 1),
        "silent_seconds": round(found.silent_seconds, 1),
        "block_seconds": round(found.log.seconds, 3),
        "planned_seconds": found.planned("seconds"),
        "planned_peak_bytes": found.planned("peak_bytes"),
        "failed_attempts": found.log.retries,
        "failures": list(found.log.failures),
        "unsolved": {str(block): labels for block, labels in found.log.unsolved.items()},
    }


def _for_people(folder: str, found: RunStatus) -> Any:
    from longtail.report import Facts

    log = found.log
    facts: dict[str, Any] = {"run": folder, "state": f"running: {found.holder}" if found.holder else found.state}
    data, method = found.identity.get("data", {}), found.identity.get("method", {}).get("method")
    facts["method"] = f"{method} with workers {log.workers or 'unknown'}"
    facts["data"] = ", ".join(f"{data.get(name)} {name}" for name in ("rows", "features", "labels"))
    facts["blocks"] = f"{found.n_done:,} of {found.n_blocks:,} done, {found.share:.1%} of the work"
    facts["on disk"] = size(found.bytes)
    seconds, peak = found.planned("seconds"), found.planned("peak_bytes")
    if seconds is not None and peak is not None:
        facts["plan"] = f"{duration(seconds)} in all, peak memory {size(peak)}"
    if found.state == "running":
        if log.speed > 0:
            facts["speed"] = f"{log.speed * 60:.2%} of the work per minute"
        left = found.seconds_left
        facts["time left"] = "not known yet" if left is None else duration(left)
        facts["last sign"] = f"{duration(found.silent_seconds)} ago"
    facts["started"] = f"{log.sessions} time{'' if log.sessions == 1 else 's'}"
    facts["failed attempts"] = log.retries
    for failure in list(log.failures)[-SHOWN:]:
        facts[f"  block {failure['block']}, attempt {failure['attempt']}"] = failure["reason"]
    for block, labels in list(log.unsolved.items())[:SHOWN]:
        facts[f"  block {block} unsolved"] = labels
    if found.state == "stopped":
        facts["to go on"] = "give the same training command again"
    return Facts(facts)
