"""A command line of heavydistill that is called in this process."""

import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Called with the words after the program's name: exit code, output, errors."""

    def run(*words: object) -> tuple[int, str, str]:
        from heavydistill.cli.app import main

        monkeypatch.setattr(sys, "argv", ["heavydistill", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def command(call: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str]]:
    """As ``call``: exit code, and all that is printed without its line breaks."""

    def run(*words: object) -> tuple[int, str]:
        code, *printed = call(*words)
        return code, " ".join("".join(printed).replace("\\\n", "").split())

    return run
