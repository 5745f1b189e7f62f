"""The curves of a GRPO training as ``curves.png`` and ``curves.svg``, from ``log_history`` alone.

Six panels over the steps: held-out accuracy (HM, V and the thinker's pass@1), HM - V, the training
reward, entropy, length, and the groups that teach nothing. What is logged at every step is drawn
thin, and its smoothed values, which the guards look at, thick, as the figure says; as long as there
are too few steps to smooth, the steps themselves stand for them. Where a guard fired there is a
line, with its name in the panel that it looks at.

The colours are those of Okabe and Ito, which the colour-blind can tell apart, and no two lines of a
panel differ in colour alone. The same history gives the same bytes with the same matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heavydistill.store.training_record import Alarm
from heavydistill.train.grpo.groups import ALL_RIGHT, ALL_WRONG, UNCOMPARED
from heavydistill.train.grpo.guards import ENTROPY, LENGTH, REWARD, GuardArguments, series, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "curves"
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_GREY, _BLACK = "#666666", "#000000"
_INCHES = (11.0, 9.5)
_DPI = 120
_LEGEND_COLUMNS = 3


class _Line(NamedTuple):
    """A logged value; evaluations have markers, and all other lines are smoothed."""

    name: str
    label: str
    colour: str
    style: str = "-"
    marker: str = ""


class _Panel(NamedTuple):
    """What is drawn together; ``share`` if its values lie between 0 and 1."""

    title: str
    unit: str
    lines: tuple[_Line, ...]
    guard: str = ""
    share: bool = False


_PANELS = (
    _Panel(
        "Held-out accuracy",
        "share right",
        (
            _Line("eval_hm", "HM: deliberations", _BLUE, marker="o"),
            _Line("eval_v", "V: vote of the attempts", _ORANGE, "--", marker="^"),
            _Line("eval_pass_at_1", "pass@1: thinker", _GREEN, marker="s"),
        ),
        guard="evaluation",
    ),
    _Panel(
        "Deliberation against the vote",
        "HM - V, share right",
        (_Line("eval_hm_minus_v", "HM - V", _BLUE, marker="o"),),
    ),
    _Panel("Training reward", "mean reward", (_Line(REWARD, "reward", _BLUE),)),
    _Panel("Entropy", "nats a token", (_Line(ENTROPY, "entropy", _BLUE),), guard="entropy"),
    _Panel("Length", "tokens a completion", (_Line(LENGTH, "mean", _BLUE),), guard="length"),
    _Panel(
        "Groups that teach nothing",
        "share of groups",
        (
            _Line("frac_reward_zero_std", "all rewards equal", _GREY),
            _Line(ALL_RIGHT, "solved", _RED, "--"),
            _Line(ALL_WRONG, "hopeless", _BLUE, ":"),
            _Line(UNCOMPARED, "fewer than 2 judged", _ORANGE, "-."),
        ),
        guard="all_right",
        share=True,
    ),
)


def draw(
    history: Sequence[Mapping[str, Any]],
    folder: Path,
    fired: Sequence[Alarm],
    window: int = GuardArguments.guard_window,
) -> None:
    """Write both files, each in one piece.

    Args:
        history: ``log_history`` of the Trainer's state. A panel says if there is nothing.
        folder: Made if it is not there.
        fired: Guards to mark.
        window: Of the smoothing.
    """
    import matplotlib
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the user's style
        matplotlib.rcParams.update({"svg.hashsalt": NAME, "font.size": 10})
        figure = Figure(figsize=_INCHES, layout="constrained")
        cells = figure.subplots(3, 2, sharex=True)
        for axes, panel in zip(cells.flat, _PANELS, strict=True):
            _draw(axes, panel, history, fired, window)
        for axes in cells[-1]:
            axes.set_xlabel("training step")
            axes.xaxis.get_major_locator().set_params(integer=True)
        figure.supxlabel(
            f"Thin: every step that was logged. Thick: the median of {window} of them, at which "
            "the guards look. With marks: evaluations.",
            fontsize=8,
            color=_GREY,
        )
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it is laid out, once for both
        for kind, said in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            new = folder / f".{NAME}.{kind}.new"
            figure.savefig(new, format=kind, dpi=_DPI, metadata=said)
            new.replace(folder / f"{NAME}.{kind}")


def _draw(
    axes: Axes,
    panel: _Panel,
    history: Sequence[Mapping[str, Any]],
    fired: Sequence[Alarm],
    window: int,
) -> None:
    axes.set_ylabel(panel.unit)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = [_draw_line(axes, line, series(history, line.name), window) for line in panel.lines]
    if not any(drawn):
        axes.text(0.5, 0.5, "nothing logged", transform=axes.transAxes, ha="center", color=_GREY)
    if panel.share:
        axes.set_ylim(-0.03, 1.03)
    elif panel.unit.startswith("HM - V"):
        axes.axhline(0, color=_GREY, linewidth=1)
    for alarm in fired:
        is_own = alarm.guard == panel.guard
        label = f"guard, step {alarm.step}: {alarm.action.replace('_', ' ')}" if is_own else None
        axes.axvline(
            alarm.step,
            color=_BLACK if is_own else _GREY,
            linestyle="-." if is_own else ":",
            linewidth=1.4 if is_own else 0.8,
            label=label,
        )
    is_titled = len(panel.lines) == 1 and panel.guard not in {alarm.guard for alarm in fired}
    entries = 0 if is_titled else len(axes.get_legend_handles_labels()[0])
    rows = -(-entries // _LEGEND_COLUMNS)
    axes.set_title(panel.title, loc="left", fontweight="bold", pad=6 + 14 * rows)
    if rows:
        # Between title and axes, where it hides no line.
        legend = axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderaxespad=0.2,
            ncols=_LEGEND_COLUMNS,
            columnspacing=1,
            fontsize=8,
            frameon=False,
        )
        legend.set_in_layout(False)  # the pad of the title has its room


def _draw_line(axes: Axes, line: _Line, points: list[tuple[int, float]], window: int) -> bool:
    """Whether there was anything to draw."""
    if not points:
        return False
    steps, values = zip(*points, strict=True)
    if line.name.startswith("eval_"):
        axes.plot(
            steps, values, line.style, color=line.colour, marker=line.marker, label=line.label
        )
        return True
    thick = smoothed(points, window)
    if thick:
        axes.plot(steps, values, "-", color=line.colour, alpha=0.3, linewidth=0.8)
        steps, values = zip(*thick, strict=True)
    # A line of one point is none.
    marker = "" if len(steps) > 1 else "."
    axes.plot(
        steps,
        values,
        line.style,
        color=line.colour,
        marker=marker,
        linewidth=2 if thick else 1,
        label=line.label,
    )
    return True
