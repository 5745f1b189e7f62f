"""The curves: what is drawn, and the same bytes again."""

import pytest
from recorded import K16, history

from heavydistill.report.curves import draw
from heavydistill.train.guards import GuardOptions, alarms

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def test_the_same_history_gives_the_same_bytes(tmp_path):
    entries = history(K16)
    fired = alarms(entries, GuardOptions())
    for name in ("first", "second"):
        draw(entries, tmp_path / name, fired)
    for kind in ("png", "svg"):
        first, second = (tmp_path / name / f"curves.{kind}" for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == [
        "curves.png",
        "curves.svg",
    ]
    text = (tmp_path / "first" / "curves.svg").read_text(encoding="utf-8")
    for said in ("Held-out accuracy", "tokens a completion", "guard, step 150: warn", "HM - V"):
        assert said in text


def test_what_was_not_logged_is_said(tmp_path):
    draw([{"loss": 0.1, "reward": 0.5, "step": 1}], tmp_path, [])
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8").count("nothing logged") >= 5


def test_a_distillation_has_its_loss_and_cut_off_responses_in_place_of_rewards(tmp_path):
    entries = [{"loss": 0.5, "completions/clipped_ratio": 0.1, "step": step} for step in (1, 2)]
    draw(entries, tmp_path, [])
    text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert "Training loss" in text and "Cut off" in text
    assert "Training reward" not in text and text.count("nothing logged") == 4


def test_a_single_point_is_seen_and_the_smoothing_is_said(tmp_path):
    marks = []
    for steps in ([1], [1, 2]):
        entries = [{"reward": 0.5, "groups/all_wrong": 0.2, "step": step} for step in steps]
        draw([*entries, {"eval_v": 0.4, "step": 1}], tmp_path, [])
        text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
        for said in ("hopeless", "V: vote of the attempts", "Thick: running median of 5 steps"):
            assert said in text
        marks.append(text.count(" <use ") - text.count("xtick") - text.count("ytick"))
    assert marks[0] > marks[1] > 0  # two points are a line already
