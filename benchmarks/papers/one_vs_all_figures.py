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


def at(row: Row, name: str, step: int = 0) -> float:
    """The mean at a step, counted from 0."""
    return float(row["by step"][name][step])


def rarest(row: Row, name: str) -> float:
    return float(row["by positives"][name][0])


def frequent(row: Row, name: str) -> float:
    return float(row["by positives"][name][-1])


def compared(claims: Mapping[str, bool]) -> str:
    """What the paper says, divided by whether it holds here."""
    holds = [claim for claim, true in claims.items() if true]
    fails = [claim for claim, true in claims.items() if not true]
    parts = [f"**Agreement** with the paper: {'; '.join(holds)}."] if holds else []
    return " ".join([*parts, f"**Difference:** the paper has that {'; '.join(fails)}."] if fails else parts)


# --- section 3 -------------------------------------------------------------------------------------------------------


def show_objective(rows: Rows, folder: Path) -> str:
    starts, data = runs(folder, ("Zero", "OvAP", "Bias 1"))
    biases, _ = runs(folder, BIASES)
    shown = drawn(folder, "figure-1", "Objective at each step",
                  lambda axes: against_steps(axes, starts, "objective"),
                  lambda axes: against_steps(axes, biases, "objective"))  # fmt: skip
    fall = {said: at(row, "objective") / at(row, "objective", 1) for said, row in biases.items()}
    claims = {
        "Bias begins orders of magnitude below Zero (three of them in the paper)":
            at(starts["Bias 1"], "objective") < at(starts["Zero"], "objective") / 10,
        "the first step from factor 1 gains next to nothing": fall["factor 1"] < 1.1,
        "with the factors 0.9 and 2 the first step gains much": min(fall["factor 0.9"], fall["factor 2"]) > 1.3,
    }  # fmt: skip
    return (
        f"{shown}\n\n{data}; Bias on the left has factor 1. The bands are the 5 and 95 % quantiles. Means are over the "
        "labels that still take this step, so they may rise.\n\n"
        f"The mean objective at the start is: {first(starts, 'objective', 3)}. The first step divides it by "
        f"{', '.join(f'{value:.1f} ({said})' for said, value in fall.items())}. {compared(claims)}"
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
    factors = {said: at(row, "multiplier") for said, row in shown.items()}
    claims = {
        "at factor 1 the first step has to be shortened most": min(factors, key=factors.__getitem__) == "factor 1",
        "at factor 0.9 the first step need not be shortened": factors["factor 0.9"] > 0.95,
    }
    return (
        f"{made}\n\n{data}. The mean multiplier of the first step is: {first(shown, 'multiplier')}. All negatives lie on the kink "
        f"of the loss at factor 1. {compared(claims)}"
    )


def show_bias_sparsity(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, BIASES)
    made = drawn(folder, "figure-4", "Active rows and work for three bias starts",
                 lambda axes: against_steps(axes, shown, "active"),
                 lambda axes: against_steps(axes, shown, "passes"))  # fmt: skip
    second = ", ".join(f"{said} {at(row, 'active', 1):.2g}" for said, row in shown.items())
    one, two = shown["factor 1"], shown["factor 2"]
    claims = {
        "factors 1 and 2 begin sparse": max(at(one, "active"), at(two, "active")) < 0.1,
        "much of this sparsity is lost in the first step": min(at(row, "active", 1) / at(row, "active") for row in (one, two)) > 2,
        "factor 1 is the slowest and factor 2 the fastest":
            sorted(shown, key=lambda said: -shown[said]["passes"]) == ["factor 1", "factor 0.9", "factor 2"],
    }  # fmt: skip
    return (
        f"{made}\n\n{data}. The share of active rows at step 1 is {first(shown, 'active')}; at step 2 it is {second}. Passes per "
        f"label in all: {means(shown, 'passes')}. The paper's training takes 995, 1,161 and 558 seconds with the factors 0.9, 1 and "
        f"2. {compared(claims)}"
    )


# --- section 4 -------------------------------------------------------------------------------------------------------


def show_sparsity(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-6", "Active rows at each step", lambda axes: against_steps(axes, shown, "active"))
    second = ", ".join(f"{said} {at(row, 'active', 1):.2g}" for said, row in shown.items())
    bias, msi = shown["Bias"], shown["MSI"]
    claims = {
        "Bias begins sparse and loses this in its first step": at(bias, "active", 1) > 2 * at(bias, "active"),
        "MSI stays as sparse as it begins": at(msi, "active", 1) < 1.5 * at(msi, "active"),
    }
    return (
        f"{made}\n\n{data}. The share of active rows at step 1 is {first(shown, 'active')}; at step 2 it is {second}. "
        f"{compared(claims)}"
    )


def show_positives(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-7", "Steps and work against the positives of a label",
                 lambda axes: against_positives(axes, shown, "steps"),
                 lambda axes: against_positives(axes, shown, "passes"))  # fmt: skip
    growth = {said: rarest(row, "steps") / frequent(row, "steps") for said, row in shown.items()}
    claims = {
        "with Zero and OvAP the number of steps grows as positives become fewer": min(growth["Zero"], growth["OvAP"]) > 1.2,
        "with Bias and MSI the number of steps stays nearly constant": max(growth["Bias"], growth["MSI"]) < 1.4,
        "MSI takes the fewest passes for the rarest labels":
            min(shown, key=lambda said: rarest(shown[said], "passes")) == "MSI",
    }  # fmt: skip
    return (
        f"{made}\n\n{data}. The steps of the rarest and of the most frequent labels are: {ends(shown, 'steps')}; the passes: "
        f"{ends(shown, 'passes')}. {compared(claims)}"
    )


def show_per_step(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-8", "Work and multiplier of each step",
                 lambda axes: against_steps(axes, shown, "passes"),
                 lambda axes: against_steps(axes, shown, "multiplier"))  # fmt: skip
    bias, msi = shown["Bias"], shown["MSI"]
    claims = {
        "the first iterations of MSI are as fast as its last ones": at(msi, "passes") < 1.5 * at(msi, "passes", -1),
        "the first multiplier of MSI is much larger than that of Bias": at(msi, "multiplier")
        > 2 * at(bias, "multiplier"),
    }
    return (
        f"{made}\n\n{data}. The first step takes {first(shown, 'passes')} passes, with the multipliers "
        f"{first(shown, 'multiplier')}. {compared(claims)}"
    )


# --- appendix --------------------------------------------------------------------------------------------------------


def show_stops(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STOPS)
    made = drawn(folder, "figure-9", "Loose and strict OvA-Primal",
                 lambda axes: against_positives(axes, shown, "passes"),
                 lambda axes: as_histogram(axes, shown),
                 lambda axes: against_positives(axes, shown, "steps"))  # fmt: skip
    claims = {"loose is faster than strict": shown["loose"]["passes"] < shown["strict"]["passes"]}
    return (
        f"{made}\n\n{data}. The mean steps are {means(shown, 'steps')} and the mean passes {means(shown, 'passes')}. Steps of the "
        f"rarest and of the most frequent labels: {ends(shown, 'steps')}. In the paper loose is much faster except for labels with "
        f"fewer than three positives. {compared(claims)}"
    )


def show_stop_steps(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STOPS)
    made = drawn(folder, "figure-11", "Objective and multiplier, loose and strict",
                 lambda axes: against_steps(axes, shown, "objective"),
                 lambda axes: against_steps(axes, shown, "multiplier"))  # fmt: skip
    loose, strict = shown["loose"], shown["strict"]
    claims = {
        "strict begins with a lower loss (by an order of magnitude in the paper)":
            at(strict, "objective") < at(loose, "objective"),
        "the first step of strict is shortened to uselessness": at(strict, "multiplier") < 0.5 * at(loose, "multiplier"),
    }  # fmt: skip
    return (
        f"{made}\n\n{data}. The mean objective at the start is {first(shown, 'objective', 3)}, and the first multiplier "
        f"{first(shown, 'multiplier')}. {compared(claims)}"
    )


def show_biases(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, BIASES)
    made = drawn(folder, "figure-12", "Three bias starts",
                 lambda axes: against_positives(axes, shown, "passes"),
                 lambda axes: as_histogram(axes, shown),
                 lambda axes: against_positives(axes, shown, "steps"))  # fmt: skip
    passes, steps = ({said: row[name] for said, row in shown.items()} for name in ("passes", "steps"))
    claims = {
        "factor 1 is a local maximum of the time": max(passes, key=passes.__getitem__) == "factor 1",
        "factor 2 also takes the fewest steps": min(steps, key=steps.__getitem__) == "factor 2",
    }
    return (
        f"{made}\n\n{data}. The mean passes are {means(shown, 'passes')} and the mean steps {means(shown, 'steps')}. "
        f"{compared(claims)}"
    )


def show_distance(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, STARTS, TAIL)
    made = drawn(folder, "figure-14", "Objective and distance of the starts",
                 lambda axes: against_positives(axes, shown, "start objective"),
                 lambda axes: against_positives(axes, shown, "start distance"))  # fmt: skip
    others = [row for said, row in shown.items() if said != "Zero"]
    away = {said: rarest(row, "start distance") for said, row in shown.items()}
    claims = {
        "except for Zero, the loss is much lower for tail labels":
            max(rarest(row, "start objective") / frequent(row, "start objective") for row in others) < 0.5,
        "except for Zero, the distance is lower for tail labels too":
            max(rarest(row, "start distance") / frequent(row, "start distance") for row in others) < 0.7,
        "OvAP is by far the farthest start of tail labels": away["OvAP"] > 2 * max(away["Bias"], away["MSI"]),
    }  # fmt: skip
    return (
        f"{made}\n\n{data}. The distances of the rarest and of the most frequent labels are: {ends(shown, 'start distance')}; the "
        f"objectives at the start: {ends(shown, 'start objective')}. {compared(claims)}"
    )


def show_separations(rows: Rows, folder: Path) -> str:
    shown, data = runs(folder, SEPARATIONS)
    made = drawn(folder, "figure-15", "Three values of t",
                 lambda axes: against_steps(axes, shown, "passes"),
                 lambda axes: against_positives(axes, shown, "steps"),
                 lambda axes: against_steps(axes, shown, "objective"),
                 lambda axes: against_positives(axes, shown, "start distance"))  # fmt: skip
    one, *others = shown.values()
    claims = {
        "t = −1 needs more iterations than t = −2 and −3": one["steps"] > max(row["steps"] for row in others),
        "t = −1 begins with a higher loss": at(one, "objective") > max(at(row, "objective") for row in others),
        "t = −1 begins closest for rare labels":
            rarest(one, "start distance") < min(rarest(row, "start distance") for row in others),
    }  # fmt: skip
    return (
        f"{made}\n\n{data}. The mean steps are {means(shown, 'steps')}, the mean passes {means(shown, 'passes')}, the objectives at "
        f"the start {first(shown, 'objective', 3)}; the distances of the rarest and of the most frequent labels: "
        f"{ends(shown, 'start distance')}. {compared(claims)}"
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
        f"{made}\n\n{row['labels']:,} labels of {row['of']:,}. Mean steps: {means(shown, 'steps')}; passes: {means(shown, 'passes')}. Steps of the rarest and of the most "
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
