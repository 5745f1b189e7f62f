"""bespokelabs-curator as a contestant, in an environment of its own: its pins exclude ours.

    python -m venv curator && curator/bin/pip install bespokelabs-curator==0.1.31
    curator/bin/python curator_client.py '{"url": ..., "problems": N, "k": K, "slots": S}'

Its telemetry, viewer, cache and table in the terminal are off. It has no number of samples, so
each problem stands in its input ``k`` times.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

from stub_server import MODEL, problem

# litellm brings the vocabulary that curator would download to count tokens.
_litellm = Path(importlib.util.find_spec("litellm").origin).parent
os.environ |= {
    "TIKTOKEN_CACHE_DIR": str(_litellm / "litellm_core_utils" / "tokenizers"),
    "TELEMETRY_ENABLED": "0",
    "CURATOR_VIEWER": "0",
    "CURATOR_DISABLE_CACHE": "1",
    "CURATOR_DISABLE_RICH_DISPLAY": "1",
    # Prices, which it would look up in the network.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_API_KEY": "none",
}


def ask(url: str, problems: int, k: int, slots: int) -> None:
    """One request a sample, ``slots`` at a time."""
    from bespokelabs import curator

    class Thinker(curator.LLM):
        def prompt(self, row: dict) -> str:
            return row["text"]

        def parse(self, row: dict, response: str) -> dict:
            return {"text": row["text"], "answer": response}

    limits = {
        "base_url": url,
        "max_concurrent_requests": slots,
        # So high that they never hold a request back.
        "max_requests_per_minute": 10_000_000,
        "max_tokens_per_minute": 10_000_000_000,
    }
    rows = [{"text": problem(number)} for number in range(problems) for _ in range(k)]
    with tempfile.TemporaryDirectory() as folder:
        thinker = Thinker(model_name=MODEL, backend="openai", backend_params=limits)
        answered = thinker(rows, working_dir=folder)
        assert len(answered.dataset) == problems * k


if __name__ == "__main__":
    ask(**json.loads(sys.argv[1]))
