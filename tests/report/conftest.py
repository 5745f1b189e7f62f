from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.cells import cell_len
from rich.console import Console

WIDTH = 80


@pytest.fixture
def printed() -> Callable[..., str]:
    """What a print function writes to a file, 80 columns wide; no line may be wider."""

    def run(function: Callable[..., None], value: object, **options: object) -> str:
        console = Console(record=True, width=WIDTH, file=io.StringIO())
        function(value, console, **options)
        text = console.export_text()
        assert max(map(cell_len, text.splitlines())) <= WIDTH
        return text

    return run
