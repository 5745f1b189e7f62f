"""Plots a training on prompts from its log history, as ``curves.png`` and ``curves.svg``.

Logged steps are a thin line; their running median, which the guards compare, is a thick line;
evaluations have markers. A guard that fired is a vertical line with its name, in the panel of its
metric. Colours are the Okabe-Ito palette; lines of one panel also differ in dashes or markers. The
same history and version of matplotlib give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from heavydistill.config.files import new_file
from heavydistill.store.training_record import Alarm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[int, float]
"""(step, value)."""
NAME = "curves"
_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
_LINES = {  # by name in the logs: label, colour, style, marker
    "eval_hm": ("HM: deliberations", _BLUE, "-", "o"),
    "eval_hm_garbled": ("HM with garbled attempts", _GREY, ":", "v"),
    "eval_v": ("V: vote of the attempts", _ORANGE, "--", "^"),
    "eval_pass_at_1": ("pass@1: thinker", _GREEN, "-", "s"),
    "eval_hm_minus_v": ("HM - V", _BLUE, "-", "o"),
    "reward": ("reward", _BLUE, "-", ""),
    "loss": ("loss", _BLUE, "-", ""),
    "completions/clipped_ratio": ("cut off", _BLUE, "-", ""),
    "entropy": ("entropy", _BLUE, "-", ""),
    "completions/mean_length": ("mean", _BLUE, "-", ""),
    "frac_reward_zero_std": ("all rewards equal", _GREY, "-", ""),
    "groups/all_right": ("solved", _RED, "--", ""),
    "groups/all_wrong": ("hopeless", _BLUE, ":", ""),
    "groups/uncompared": ("fewer than 2 judged", _ORANGE, "-.", ""),
}
_GROUPS = ["frac_reward_zero_std", "groups/all_right", "groups/all_wrong", "groups/uncompared"]
_HELD_OUT = ["eval_hm", "eval_hm_garbled", "eval_v", "eval_pass_at_1"]
_PANELS = (  # title, unit, guard, lines
    ("Held-out accuracy", "share right", "evaluation", _HELD_OUT),
    ("Deliberation against the vote", "HM - V, share right", "", ["eval_hm_minus_v"]),
    ("Training reward", "mean reward", "", ["reward"]),
    ("Entropy", "nats a token", "entropy", ["entropy"]),
    ("Length", "tokens a completion", "length", ["completions/mean_length"]),
    ("Groups without a signal", "share of groups", "all_right", _GROUPS),
)
# In place of panels of rewards, which a distillation does not have.
_OF_DISTILLATION = {
    "Training reward": ("Training loss", "nats a token", "loss", ["loss"]),
    "Groups without a signal": (
        "Cut off",
        "share of responses",
        "cut_off",
        ["completions/clipped_ratio"],
    ),
}


def series(history: Sequence[Mapping[str, float]], name: str) -> list[Point]:
    """Return all finite values logged under a name, in log order.

    Entries without the name are skipped, because trainers log metrics at different steps.
    """
    return [
        (int(entry["step"]), float(entry[name]))
        for entry in history
        if entry.get(name) is not None and math.isfinite(entry[name])
    ]


def smoothed(points: Sequence[Point], window: int) -> list[Point]:
    """Return the running median over ``window`` values, from the first complete window on."""
    values = [value for _, value in points]
    ends = range(window, len(points) + 1)
    return [(points[end - 1][0], median(values[end - window : end])) for end in ends]


def draw(
    history: Sequence[Mapping[str, float]], folder: Path, fired: Sequence[Alarm], window: int = 5
) -> None:
    """Write ``curves.png`` and ``curves.svg``, each atomically; the folder is created if missing.

    The user's matplotlib style has no effect. A panel without logged values has a note instead.

    Args:
        history: Log of a trainer: mappings with a ``step`` each.
        folder: Folder for ``curves.png`` and ``curves.svg``.
        fired: Alarms of guards, drawn as vertical lines in the panel of the guard.
        window: Number of logged values in the running median, as for the guards.
    """
    import matplotlib
    from matplotlib.figure import Figure

    is_rewarded = any("reward" in entry for entry in history)
    other = {} if is_rewarded else _OF_DISTILLATION
    panels = [other.get(panel[0], panel) for panel in _PANELS]
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore the user's style
        matplotlib.rcParams.update({"svg.hashsalt": NAME, "font.size": 10})
        figure = Figure(figsize=(11, 9.5), layout="constrained")
        cells = figure.subplots(3, 2, sharex=True)
        for axes, (title, unit, guard, lines) in zip(cells.flat, panels, strict=True):
            axes.set_title(title, loc="left", fontweight="bold")
            axes.set_ylabel(unit)
            axes.grid(alpha=0.25)
            drawn = [_draw_line(axes, line, series(history, line), window) for line in lines]
            if not any(drawn):
                axes.text(0.5, 0.5, "nothing logged", transform=axes.transAxes, ha="center")
            for alarm in fired:
                label = f"guard, step {alarm.step}: {alarm.action.replace('_', ' ')}"
                own = alarm.guard == guard
                style = "-." if own else ":"
                axes.axvline(alarm.step, color="black", ls=style, label=label if own else None)
            if len(axes.get_legend_handles_labels()[0]) > (len(lines) == 1):
                axes.legend(fontsize=8)
        for axes in cells[-1]:
            axes.set_xlabel("training step")
            axes.xaxis.get_major_locator().set_params(integer=True)
        figure.supxlabel(
            f"Thin: logged steps. Thick: running median of {window} steps, which the guards "
            "compare. With markers: evaluations.",
            fontsize=8,
        )
        for kind, metadata in (
            ("png", {"Software": None}),
            ("svg", {"Date": None, "Creator": None}),
        ):
            with new_file(folder / f"{NAME}.{kind}") as file:
                figure.savefig(file, format=kind, dpi=120, metadata=metadata)


def _draw_line(axes: Axes, name: str, points: list[Point], window: int) -> bool:
    """Plot the values logged under a name; return whether there were any."""
    label, colour, style, marker = _LINES[name]
    thick = [] if marker else smoothed(points, window)
    if thick:
        axes.plot(*zip(*points, strict=True), "-", color=colour, alpha=0.3, linewidth=0.8)
    shown = thick or points
    if shown:
        marker = marker or ("." if len(shown) == 1 else "")  # a line of one point is invisible
        line: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": 2 if thick else 1}
        axes.plot(*zip(*shown, strict=True), style, label=label, **line)
    return bool(shown)
