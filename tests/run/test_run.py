"""What is found before a run begins, and before anything heavy is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError, JournalError
from heavydistill.run.generate import check

OTHER_FORMAT = b"heavydistill journal 999\n"


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("fault", ["file", "format", "folder"])
def test_a_journal_that_cannot_be_used_is_found_by_the_check(
    tmp_path: Path, fault: str, asks: bool
) -> None:
    journal = tmp_path / "journal"
    if fault == "file":
        journal.write_text("")
    else:
        journal.mkdir()
        segment = journal / "1.segment"
        segment.mkdir() if fault == "folder" else segment.write_bytes(OTHER_FORMAT)
    config = load_config(None, {"problems.limit": 1, "out": str(tmp_path / "run")})
    with pytest.raises(JournalError) as caught:
        check(config, asks)
    assert str(journal) in caught.value.what


def test_so_is_one_that_cannot_be_written_but_whoever_reads_alone_may_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """root may write everywhere, so the system is asked by another."""

    make = tempfile.TemporaryFile

    def refusing(dir: Path, **keys: Any) -> Any:
        if dir == tmp_path / "journal":
            raise PermissionError(13, os.strerror(13))
        return make(dir=dir, **keys)

    (tmp_path / "journal").mkdir()
    monkeypatch.setattr(tempfile, "TemporaryFile", refusing)
    config = load_config(None, {"problems.limit": 1, "out": str(tmp_path / "run")})
    with pytest.raises(JournalError, match="cannot be used: Permission denied") as caught:
        check(config)
    assert caught.value.fix == "Allow this user to write there, or name another --journal."
    assert check(config, asks=False).journal == tmp_path / "journal"


def test_a_folder_that_cannot_be_written_is_found_before_its_journal() -> None:
    config = load_config(None, {"problems.limit": 1, "out": "/proc/nowhere/run"})
    with pytest.raises(ConfigError, match="out: /proc/nowhere/run cannot be written") as caught:
        check(config)
    assert caught.value.fix == "Name another --out."


def test_nothing_heavy_is_loaded_to_find_it(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    code = (
        "import sys\n"
        "from heavydistill.cli.app import main\n"
        f"sys.argv = ['heavydistill', 'generate', '--dry-run', '--out={tmp_path / 'run'}']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print({'torch', 'transformers', 'distilabel', 'vllm'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "set()" in done.stdout
    assert f"Error: The journal {tmp_path / 'journal'} cannot be used" in done.stderr
