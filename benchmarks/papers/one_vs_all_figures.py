"""The figures of DiSMEC++, drawn from the recorded steps of the runs of Table 1.

Figures that compare the starts show TAIL, which has rare labels, as soon as it is measured. Figures that compare variants
of one start show EXAMPLE or SMALL, which have these. The paper draws all of them for AmazonCat-13K. Where the paper has
milliseconds, passes over the rows are shown (newton_runs.py). Figure 5 is a sketch and has no data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.common import Bench, Experiment, Row, Rows, figure, gathered, picture

SMALL, EXAMPLE, TAIL = "bibtex", "debian-tags", "tib-gnd-en-papers"
STARTS = ("Zero", "Bias", "OvAP", "MSI")
BIASES = {"Bias 0.9": "factor 0.9", "Bias 1": "factor 1", "Bias": "factor 2"}
STOPS = {"OvAP": "loose", "OvAP strict": "strict"}
SEPARATIONS = {"MSI t = -1": "t = −1", "MSI": "t = −2", "MSI t = -3": "t = −3"}
LABELS = {
    "objective": "objective",
    "multiplier": "multiplier of the step",
    "active": "share of active rows",
    "passes": "passes over the rows",
    "steps": "Newton steps",
    "start objective": "objective at the start",
    "start distance": "distance from start to solution",
}


def runs(folder: Path, names: Sequence[str] | Mapping[str, str], *preferred: str) -> tuple[dict[str, Row], str]:
    """The runs with these names, under the names of the legend, and the first data set that has them."""
    rows = gathered(folder, "table-1")
    data = next(data for data in (*preferred, EXAMPLE, SMALL) if all(f"{data}|{name}" in rows for name in names))
    legend = names if isinstance(names, Mapping) else {name: name for name in names}
    return {said: rows[f"{data}|{name}"] for name, said in legend.items()}, data


def against_steps(axes: Any, shown: Mapping[str, Row], name: str) -> None:
    """A curve per run: the mean over the labels that are not solved before each step."""
    for said, row in shown.items():
        each = row["by step"]
        steps = range(1, len(each[name]) + 1)
        (line,) = axes.plot(steps, each[name], ".-", label=said)
        if name == "objective":
            axes.fill_between(steps, each["objective low"], each["objective high"], alpha=0.12, color=line.get_color())
    axes.set(xlabel="Newton step", ylabel=LABELS[name], yscale="linear" if name == "multiplier" else "log")
    axes.legend(fontsize=8)


def against_positives(axes: Any, shown: Mapping[str, Row], name: str) -> None:
    for said, row in shown.items():
        each = row["by positives"]
        axes.plot(each["positives"], each[name], ".-", label=said)
    axes.set(xlabel="positives of the label", ylabel=LABELS[name], xscale="log", yscale="log")
    axes.legend(fontsize=8)


def as_histogram(axes: Any, shown: Mapping[str, Row]) -> None:
    for said, row in shown.items():
        axes.step(range(len(row["histogram"])), row["histogram"], where="mid", label=said)
    axes.set(xlabel="Newton steps", ylabel="labels")
    axes.legend(fontsize=8)


def drawn(folder: Path, name: str, caption: str, *panels: Callable[[Any], None]) -> str:
    made, axes = figure(len(panels))
    for draw, each in zip(panels, axes, strict=True):
        draw(each)
        each.minorticks_off()  # of logarithmic axes: they take most of the time of drawing
    return picture(made, folder, name, caption)


def first(shown: Mapping[str, Row], name: str, digits: int = 2) -> str:
    """The values at the first step, as a sentence: "factor 0.9: 1, factor 1: 0.01"."""
    return ", ".join(f"{said} {row['by step'][name][0]:.{digits}g}" for said, row in shown.items())


def means(shown: Mapping[str, Row], name: str) -> str:
    return ", ".join(f"{said} {row[name]:.1f}" for said, row in shown.items())


def ends(shown: Mapping[str, Row], name: str) -> str:
    """The values of the rarest and of the most frequent labels."""
    said = [
        f"{each} {row['by positives'][name][0]:.3g} and {row['by positives'][name][-1]:.3g}"
        for each, row in shown.items()
    ]
    return ", ".join(said)


# --- section 3 -------------------------------------------------------------------------------------------------------


def show_objective(rows: Rows, folder: Path) -> str:
    starts, data = runs(folder, ("Zero", "OvAP", "Bias 1"))
    biases, _ = runs(folder, BIASES)
    shown = drawn(folder, "figure-1", "Objective at each step",
                  lambda axes: against_steps(axes, starts, "objective"),
                  lambda axes: against_steps(axes, biases, "objective"))  # fmt: skip
    fall = {said: row["by step"]["objective"][0] / row["by step"]["objective"][1] for said, row in biases.items()}
    return (
        f"{shown}\n\n{data}; Bias on the left has factor 1. The bands are the 5 and 95 % quantiles. Means are over the "
        "labels that still take this step, so they may rise.\n\n"
        f"Paper: Bias begins with a loss three orders of magnitude below that of Zero, and its first step gains nothing. "
        f"Here the mean objective at the start is: {first(starts, 'objective', 3)}. The first step divides it by "
        f"{', '.join(f'{value:.1f} ({said})' for said, value in fall.items())}."
    )


def loss(m: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(0.0, 1.0 - m) ** 2)


def model_error(m: float, delta: np.ndarray) -> np.ndarray:
    """e(delta; m) of (17): the quadratic model (18) of the squared hinge around m, minus the loss at m + delta.

    At m = 1, where the second derivative jumps, the model has the curvature of the side m < 1, as in the paper.
    """
    slope, curvature = (-2.0 * (1.0 - m), 2.0) if m <= 1 else (0.0, 0.0)
    return np.asarray(loss(np.array(m)) + slope * delta + 0.5 * curvature * delta**2 - loss(m + delta))


def show_model(rows: Rows, folder: Path) -> str:
    delta = np.linspace(-2, 2, 201)

    def draw(axes: Any) -> None:
        for m, style in ((0.0, "-"), (1.0, "--"), (1.5, ":")):
            axes.plot(delta, model_error(m, delta), style, label=f"m = {m:g}")
        axes.set(xlabel="δ", ylabel="e(δ; m), eq. (17)")
        axes.legend(fontsize=8)

    return (
        f"{drawn(folder, 'figure-2', 'Error of the quadratic model', draw)}\n\n"
        "This figure has no data: it is eq. (17) for the squared hinge. At m = 0 the model is exact up to δ = 1 and too high "
        "beyond it. At m = 1, with the curvature of the side below 1, it is too high for every δ > 0. Above m = 1 the model is "
        "0 and too low as soon as the margin falls below 1, which is why the line search has to shorten steps."
    )


def show_bias_multiplier(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, BIASES)
    made = drawn(
        folder, "figure-3", "Multiplier for three bias starts", lambda axes: against_steps(axes, shown, "multiplier")
    )
    return (
        f"{made}\n\n{data}. Paper: at factor 1 the first step has to be shortened most, since all negatives lie on the kink of "
        f"the loss; at 0.9 it need not be shortened. Here the mean multiplier of the first step is: {first(shown, 'multiplier')}."
    )


def show_bias_sparsity(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, BIASES)
    made = drawn(folder, "figure-4", "Active rows and work for three bias starts",
                 lambda axes: against_steps(axes, shown, "active"),
                 lambda axes: against_steps(axes, shown, "passes"))  # fmt: skip
    second = ", ".join(f"{said} {row['by step']['active'][1]:.2g}" for said, row in shown.items())
    return (
        f"{made}\n\n{data}. Paper: factors 1 and 2 begin sparse, and much of that is lost in the first step. Here the share of "
        f"active rows at step 1 is {first(shown, 'active')}; at step 2 it is {second}. Passes per label in all: "
        f"{means(shown, 'passes')}. The paper's training takes 995, 1,161 and 558 seconds with the factors 0.9, 1 and 2."
    )


# --- section 4 -------------------------------------------------------------------------------------------------------


def show_sparsity(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-6", "Active rows at each step", lambda axes: against_steps(axes, shown, "active"))
    second = ", ".join(f"{said} {row['by step']['active'][1]:.2g}" for said, row in shown.items())
    return (
        f"{made}\n\n{data}. Paper: Bias begins sparse and loses this in its first step, MSI keeps it. Here the share of active "
        f"rows at step 1 is {first(shown, 'active')}; at step 2 it is {second}."
    )


def show_positives(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-7", "Steps and work against the positives of a label",
                 lambda axes: against_positives(axes, shown, "steps"),
                 lambda axes: against_positives(axes, shown, "passes"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: with Zero and OvAP the number of steps grows as positives become fewer, with Bias and MSI it "
        f"stays nearly constant. Here the steps of the rarest and of the most frequent labels are: {ends(shown, 'steps')}; the "
        f"passes: {ends(shown, 'passes')}."
    )


def show_per_step(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-8", "Work and multiplier of each step",
                 lambda axes: against_steps(axes, shown, "passes"),
                 lambda axes: against_steps(axes, shown, "multiplier"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: the first iterations of MSI are as fast as its last ones, and its multipliers are much larger "
        f"than those of Bias. Here the first step takes {first(shown, 'passes')} passes, with the multipliers "
        f"{first(shown, 'multiplier')}."
    )


# --- appendix --------------------------------------------------------------------------------------------------------


def show_stops(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STOPS)
    made = drawn(folder, "figure-9", "Loose and strict OvA-Primal",
                 lambda axes: against_positives(axes, shown, "passes"),
                 lambda axes: as_histogram(axes, shown),
                 lambda axes: against_positives(axes, shown, "steps"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: loose is much faster except for labels with fewer than three positives. Here the mean steps "
        f"are {means(shown, 'steps')} and the mean passes {means(shown, 'passes')}. Steps of the rarest and of the most frequent "
        f"labels: {ends(shown, 'steps')}."
    )


def show_stop_steps(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STOPS)
    made = drawn(folder, "figure-11", "Objective and multiplier, loose and strict",
                 lambda axes: against_steps(axes, shown, "objective"),
                 lambda axes: against_steps(axes, shown, "multiplier"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: strict begins with a loss an order of magnitude lower, and its first step is useless. Here the "
        f"mean objective at the start is {first(shown, 'objective', 3)}, and the first multiplier {first(shown, 'multiplier')}."
    )


def show_biases(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, BIASES)
    made = drawn(folder, "figure-12", "Three bias starts",
                 lambda axes: against_positives(axes, shown, "passes"),
                 lambda axes: as_histogram(axes, shown),
                 lambda axes: against_positives(axes, shown, "steps"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: factor 1 is a local maximum of the time; factor 2 also takes fewer steps. Here the mean passes "
        f"are {means(shown, 'passes')} and the mean steps {means(shown, 'steps')}."
    )


def show_distance(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-14", "Objective and distance of the starts",
                 lambda axes: against_positives(axes, shown, "start objective"),
                 lambda axes: against_positives(axes, shown, "start distance"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: except for Zero, loss and distance are much lower for tail labels; OvAP's distance is an order "
        f"of magnitude above the others there. Here the distances of the rarest and of the most frequent labels are: "
        f"{ends(shown, 'start distance')}; the objectives at the start: {ends(shown, 'start objective')}."
    )


def show_separations(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, SEPARATIONS)
    made = drawn(folder, "figure-15", "Three values of t",
                 lambda axes: against_steps(axes, shown, "passes"),
                 lambda axes: against_positives(axes, shown, "steps"),
                 lambda axes: against_steps(axes, shown, "objective"),
                 lambda axes: against_positives(axes, shown, "start distance"))  # fmt: skip
    return (
        f"{made}\n\n{data}. Paper: t = −1 needs more iterations than t = −2 and −3, begins with a higher loss, and yet begins "
        f"closest. Here the mean steps are {means(shown, 'steps')}, the mean passes {means(shown, 'passes')}, the objectives at "
        f"the start {first(shown, 'objective', 3)}; the distances of the rarest and of the most frequent labels: "
        f"{ends(shown, 'start distance')}."
    )


def show_set(rows: Rows, folder: Path) -> str:
    """What Figures 6, 7, 8 and 14 show, for one more data set."""
    data, row = next(iter(rows)).partition("|")[0], next(iter(rows.values()))
    shown = {name: rows[f"{data}|{name}"] for name in STARTS}
    made = drawn(folder, f"figures-{data}", f"The starts on {data}",
                 lambda axes: against_steps(axes, shown, "active"),
                 lambda axes: against_steps(axes, shown, "multiplier"),
                 lambda axes: against_positives(axes, shown, "steps"),
                 lambda axes: against_positives(axes, shown, "start distance"))  # fmt: skip
    return (
        f"{made}\n\n{row['labels']:,} labels of {row['all labels']:,}. Mean steps: {means(shown, 'steps')}; passes: {means(shown, 'passes')}. Steps of the rarest and of the most "
        f"frequent labels: {ends(shown, 'steps')}; distances from start to solution: {ends(shown, 'start distance')}."
    )


def figures(measure: Callable[[Bench], None]) -> tuple[Experiment, ...]:
    """The experiments of the figures. Their rows are those of Table 1, which `measure` measures."""
    shown = {
        "figure-1": ("Figure 1: objective at each step", show_objective),
        "figure-2": ("Figure 2: error of the quadratic model", show_model),
        "figure-3": ("Figure 3: multiplier, by bias", show_bias_multiplier),
        "figure-4": ("Figure 4: active rows, by bias", show_bias_sparsity),
        "figure-6": ("Figure 6: active rows at each step", show_sparsity),
        "figure-7": ("Figure 7: steps and work, by positives", show_positives),
        "figure-8": ("Figure 8: work and multiplier of each step", show_per_step),
        "figure-9": ("Figures 9 and 10: loose and strict OvA-Primal", show_stops),
        "figure-11": ("Figure 11: steps of loose and strict OvA-Primal", show_stop_steps),
        "figure-12": ("Figures 12 and 13: three bias starts", show_biases),
        "figure-14": ("Figure 14: objective and distance of the starts", show_distance),
        "figure-15": ("Figure 15: t of the mean-separating start", show_separations),
    }
    return tuple(Experiment(name, title, measure, show, "table-1") for name, (title, show) in shown.items())
