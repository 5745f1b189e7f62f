"""The programs of the guide, in the order of the page, with a service of models that call tools."""

import re
from pathlib import Path

from documentation import ROOT, blocks_of
from fault_server import faulty
from serving import serving

GUIDE: Path = ROOT / "docs" / "guides" / "serve.md"
CALL = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}


def test_the_programs_of_the_guide_run(capsys):
    names: dict[str, object] = {}
    with faulty(calls=[CALL], usage="never") as models, serving(models.base_url) as address:
        for block in blocks_of(GUIDE):
            if block.language == "python":
                exec(block.text.replace("http://127.0.0.1:8642/v1", address), names)
    assert capsys.readouterr().out.count("boxed") == 2
    assert names["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "a.txt b.txt"}


def test_the_guide_names_each_figure_of_prometheus():
    source = (ROOT / "heavydistill/serve/figures.py").read_text(encoding="utf-8")
    named = set(re.findall(r"`heavydistill_(\w+?)(?:_total)?`", GUIDE.read_text(encoding="utf-8")))
    counted = set(re.findall(r'counter\(\s*"(\w+)"', source))
    counted |= set(re.findall(r'"heavydistill_(\w+)"', source))
    assert named == counted
