"""Distillation in two processes: a step is that of one process on the same responses."""

import contextlib
from pathlib import Path

import one_step
import pytest
import tiny_distill
import torch
from trainings import in_two_processes

PROGRAM = Path(one_step.__file__).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("is_served", [False, True], ids=["local", "served"])
def test_two_processes_make_the_step_of_one(tmp_path, is_served):
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(tiny_distill.served_teacher()) if is_served else None
        url = [server.base_url] if server else []
        in_two_processes(PROGRAM, tmp_path, *url)
        alone = one_step.weights(tmp_path / "alone", 4, 0, *url)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    before = dict(tiny_distill.trainer(tmp_path / "new").model.named_parameters())
    for name, weight in alone.items():
        assert torch.equal(first[name], second[name]), name
        moved = weight - before[name].detach()
        assert (first[name] - weight).norm() <= 1e-4 * moved.norm() + 1e-7, name
    assert any((alone[name] - before[name]).any() for name in alone)
