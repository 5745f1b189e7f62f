"""``heavydistill serve --mcp`` as agents use it: by the client of the package ``mcp``."""

import asyncio
import os
import uuid
from typing import Any

import marked
import pytest
from command_line import COMMAND

mcp = pytest.importorskip("mcp")
QUESTION = "State the final answer to the following arithmetic problem: 12 + 34 - 5 ="


async def _talk(parameters: Any) -> None:
    lines: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async with mcp.Client(parameters) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["heavy_think", "heavy_think_start", "heavy_think_result"]
        asked = {"question": QUESTION, "k": 3}
        begun = await client.call_tool("heavy_think_start", asked)
        whole = await client.call_tool("heavy_think", asked, progress_callback=on_progress)
        assert whole.structured_content["path"] == "deliberated", whole
        assert whole.structured_content["answer"] and "Deliberating on 3 attempts." in lines
        result = begun
        while result.structured_content["status"] == "working":
            id = {"id": begun.structured_content["id"]}
            result = await client.call_tool("heavy_think_result", id)
        assert result.structured_content["path"] == "deliberated", result
        for tool, wrong, said in (
            ("heavy_think", {**asked, "k": 99}, "at most 32 are served"),
            ("heavy_think_result", {"id": "gone"}, "There is no answer gone"),
        ):
            refused = await client.call_tool(tool, wrong)
            assert refused.is_error and said in refused.content[0].text
        await client.call_tool("heavy_think_start", asked)  # ended with the service


def test_an_agent_thinks_by_tools_over_stdio_and_leaves_nothing():
    mark = uuid.uuid4().hex
    environment = {**os.environ, marked.MARK: mark}
    # Greedy, because the service draws seeds, and some draws of the deliberator have no answer.
    greedy = (f"--set={role}.sampling.temperature=0" for role in ("think", "deliberate"))
    words = ["serve", "--mcp", *greedy]
    asyncio.run(_talk(mcp.StdioServerParameters(command=COMMAND, args=words, env=environment)))
    assert marked.eventually(lambda: not marked.alive(mark), 60)
