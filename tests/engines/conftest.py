"""The lane on real engines: ``bash scripts/test.sh engines`` installs them and runs this folder.

Without vLLM beside this Python everything here is skipped.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# For this process, in which GRPO's colocate mode runs, and for the servers that it starts.
os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",  # GB
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    PYTHONPATH=str(HERE / "vllm_cpu"),
)
sys.path.insert(0, os.environ["PYTHONPATH"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("vllm"):
        return
    skip = pytest.mark.skip(reason="no vLLM here; `bash scripts/test.sh engines` installs one")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)
