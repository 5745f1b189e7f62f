"""The joint objective in two processes: the gradients of plain loops over all episodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import brute_force
import joint_steps
import pytest
import torch
from rollouts import STUDENT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = joint_steps.__file__


PROCESSES = 2  # what one makes, test_joint.py sees in this process


def test_gradients_are_those_of_plain_loops_over_the_episodes_of_all_processes(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
    done = subprocess.run(
        [sys.executable, *launch, PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    assert done.returncode == 0, done.stdout
    of_processes = [torch.load(tmp_path / f"{number}.pt") for number in range(PROCESSES)]
    of_each = brute_force.advantages(joint_steps.REWARDS, joint_steps.GROUP)
    old = AutoModelForCausalLM.from_pretrained(STUDENT, dtype=torch.float32)
    met: list[int] = []
    for step, seen in enumerate(zip(*of_processes, strict=True)):
        assert len(seen) == PROCESSES
        numbers = [number for one in seen for number in _episodes(one["rows"])]
        met += numbers
        model = AutoModelForCausalLM.from_pretrained(STUDENT, dtype=torch.float32)
        model.load_state_dict(seen[0]["weights"])
        expected = brute_force.joint_loss(
            model,
            old,
            [joint_steps.PLAYED[number] for number in numbers],
            [of_each[number] for number in numbers],
            *joint_steps.BOUNDS,
        )
        expected.backward()
        loss = sum(one["loss"] for one in seen) / PROCESSES
        assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        for one in seen:
            off = (one["gradient"] - brute_force.gradient(model)).norm()
            assert off <= 1e-5 * brute_force.gradient(model).norm()
        if step:
            ratios = [
                brute_force.ratio(model, old, joint_steps.PLAYED[number], True).item()
                for number in numbers
            ]
            low, high = joint_steps.BOUNDS
            assert min(ratios) < 1 - low and max(ratios) > 1 + high
    assert sorted(met) == list(range(len(joint_steps.PLAYED)))


def _episodes(rows: list[list[int]]) -> list[int]:
    """Numbers of the episodes that these rows are, which lie there whole and in order."""
    texts = [[id for id in row if id != 676] for row in rows]
    size = joint_steps.K + 1
    of_episodes = [
        [row.prompt_ids + row.completion.ids for row in episode.rows]
        for episode in joint_steps.PLAYED
    ]
    return [of_episodes.index(texts[start : start + size]) for start in range(0, len(texts), size)]
