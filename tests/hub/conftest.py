"""The stand-in of the Hub, and ``heavydistill publish`` in this process, pointed at it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hub_server
import pytest
from hub_server import HubServer

from heavydistill.cli.app import main

Publish = Callable[..., tuple[int, str]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    with hub_server.serving(monkeypatch) as hub:
        yield hub


@pytest.fixture
def elsewhere(hub: HubServer, tmp_path: Path) -> Callable[..., str]:
    """Runs a program in a process that knows only the stand-in: what it printed."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": hub_server.TOKEN}
    environment |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    environment["HF_HOME"] = str(tmp_path / "home")
    environment.pop("TRANSFORMERS_OFFLINE", None)

    def call(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert hub_server.TOKEN not in done.stdout + done.stderr
        return done.stdout

    return call


@pytest.fixture
def refused(hub: HubServer, publish: Publish) -> Callable[..., str]:
    """Publishes what must be refused before anything is asked; returns what was said."""

    def call(folder: Path, *flags: object) -> str:
        code, said = publish(folder, "--to", f"{hub_server.ORG}/refused", *flags)
        assert code == 2 and hub.requests == [], said
        return said

    return call


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog) -> Publish:
    """Runs the verb: (exit code, all that was printed or logged)."""

    caplog.set_level("DEBUG")

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["heavydistill", "publish", *map(str, arguments)])
        caplog.clear()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        said = printed.out + printed.err + caplog.text
        assert hub_server.TOKEN not in said
        return int(ended.value.code or 0), said

    return call
