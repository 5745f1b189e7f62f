"""What is said of prompts that leave no room for a response.

Which are left out is looked at in tests/training/test_rl_prompts.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from set_folders import write_sets
from trainings import grpo_arguments

from heavydistill.errors import ConfigError
from heavydistill.train.base_model import load_base
from heavydistill.train.grpo.data import check_room, context_of


def refused(*arguments: object) -> str:
    with pytest.raises(ConfigError) as raised:
        check_room(*arguments)  # type: ignore[arg-type]
    return str(raised.value)


@given(
    st.lists(st.integers(1, 400), min_size=1),
    st.integers(1, 400),
    st.integers(50, 500),
    st.none() | st.integers(50, 500),
)
def test_prompts_and_a_response_fit_or_the_message_says_what_would(
    lengths: list[int], response: int, context: int, server: int | None
) -> None:
    longest = max(lengths)
    if longest + response <= min(context, server or context):
        check_room(lengths, response, context, server)
        return
    message = refused(lengths, response, context, server)
    if found := re.search(r"--max_completion_length (\d+)", message):
        check_room(lengths, int(found[1]), context, None)
    elif found := re.search(r"--vllm_max_model_length (\d+)", message):
        check_room(lengths, response, context, int(found[1]))
    else:
        assert longest >= context
        assert ("Take a model that reads more" in message) == ("--too_long" not in message)
    assert ("--too_long leave_out" in message) == (
        longest + response > context and min(lengths) + response <= context
    )


def test_with_a_server_the_shorter_context_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = grpo_arguments(write_sets(tmp_path / "sets"), tmp_path, too_long="leave_out")
    base = load_base(arguments, [])
    for server, least in ((9000, base.context), (300, 300), (None, base.context)):
        monkeypatch.setattr(arguments.config, "use_vllm", True)
        monkeypatch.setattr(arguments.config, "vllm_max_model_length", server)
        assert context_of(arguments.config, base) == least
