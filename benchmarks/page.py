"""How fast the page of ``heavydistill report`` loads in a browser, and what memory it takes.

    python benchmarks/page.py                      # 2,000 traces of K=16 and D=4: minutes

The run is invented (see ``invented.py``), 1,500 characters a response. Prints time and peak memory
of the command, the size of the file, and of the page in headless chromium (the system's, through
Playwright): the seconds until its figures are there, until all of it is read, until the list of
traces is, and until a trace is shown; then the memory of the process that renders it, once loaded,
after 50 traces were looked at, and at the most while all texts are searched. Memory is what the
kernel counts for that process: its own pages, and its share of those that it has in common with
others. At last, in a page of its own, the seconds from a click on "Show all" until a text of a
million characters or of five is laid out, in words or without any place to break a line.
Ends with an error if the list takes 2 s, a text as long, or the process 300 MB.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import os
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import watched
from building import COMMAND, ROOT
from invented import MICRO_STUDENT, trace, write_run

from heavydistill.config.run import RunConfig, dump_config
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.store.traces import TRACES_FOLDER, write_traces

MOST_S, MOST_MB = 2.0, 300
RESPONSE = 1250  # characters of its reasoning; its answer has 250
LOOKED_AT = 50
NOTHING = "no text holds these words"
# Seconds from a click until what it changes is laid out and the page can be used again.
SHOWN_S = """button => new Promise(resolve => {
  const began = performance.now();
  button.click();
  requestAnimationFrame(() => setTimeout(() => resolve((performance.now() - began) / 1000)));
})"""


def write_page(run: Path, out: Path) -> watched.Watched:
    """The report of a run."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", COMMAND, "report", str(run), "--out", str(out)]
    return watched.run(command, {"PYTHONPATH": path})


class Renderer:
    """The process of a page."""

    def __init__(self, browser: Any) -> None:
        self._system = browser.new_browser_cdp_session()

    def _processes(self) -> list[dict[str, Any]]:
        told = self._system.send("SystemInfo.getProcessInfo")["processInfo"]
        return [one for one in told if one["type"] == "renderer"]

    @property
    def cpu_s(self) -> float:
        """Of all pages; there is one."""
        return float(sum(one["cpuTime"] for one in self._processes()))

    @property
    def megabytes(self) -> float:
        """The proportional share of the largest one."""
        return max(map(_share, self._processes()))


def _share(process: dict[str, Any]) -> float:
    text = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1]) * 1024 / 1e6


def look(browser: Any, file: Path, count: int) -> tuple[float, float]:
    """Open the page, use it, print what that takes; returns (seconds, megabytes at the most)."""
    page = browser.new_page()
    page.set_default_timeout(600_000)
    renderer = Renderer(browser)
    began, cpu = time.perf_counter(), renderer.cpu_s
    page.goto(file.as_uri(), wait_until="commit")
    page.wait_for_selector("#summary-0 .plot")
    figures_s = time.perf_counter() - began
    page.wait_for_load_state("load")
    loaded_s = time.perf_counter() - began
    page.keyboard.press("v")
    page.wait_for_selector("#row-0")
    list_s, cpu_s = time.perf_counter() - began, renderer.cpu_s - cpu
    memory = [renderer.megabytes]
    began = time.perf_counter()
    page.keyboard.press("j")
    page.wait_for_selector('#trace[data-shows="p0"] .response')
    shown_s = time.perf_counter() - began
    for number in range(0, count, max(1, count // LOOKED_AT)):
        page.evaluate(f"location.hash = 'traces/0/{number}'")
        page.wait_for_selector(f'#trace[data-shows="p{number}"] .response')
    memory.append(renderer.megabytes)
    began = time.perf_counter()
    page.fill("#query", NOTHING)
    page.keyboard.press("Enter")
    ended = page.locator("#searched", has_text=f"{count:,} of {count:,} searched")
    memory.append(renderer.megabytes)
    while not ended.count():
        memory[-1] = max(memory[-1], renderer.megabytes)
        time.sleep(0.05)
    search_s = time.perf_counter() - began
    searched = page.inner_text("#searched")
    memory[-1] = max(memory[-1], renderer.megabytes)
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    print(
        f"Seconds until the figures are there {figures_s:.2f}, all is read {loaded_s:.2f}, the "
        f"list is there {list_s:.2f} (CPU of the page {cpu_s:.2f}); a trace {shown_s:.2f}; a "
        f"search {search_s:.2f} ({searched})\n"
        f"Megabytes of the page: loaded {memory[0]:.0f}, {LOOKED_AT} traces later "
        f"{memory[1]:.0f}, during the search {memory[2]:.0f}; its heap then {heap:.0f}"
    )
    page.close()
    return list_s, max(memory)


def long_texts() -> dict[str, str]:
    """Texts that are longer than any response should be."""
    drawn = random.Random(1).randbytes(4_000_000)
    texts = {}
    for millions in (1, 5):
        size = millions * 1_000_000
        texts[f"{millions} M of words"] = "so it is " * (size // 9)
        texts[f"{millions} M of one character"] = "x" * size
        texts[f"{millions} M of base64"] = base64.b64encode(drawn).decode()[:size]
    return texts


def show_long_texts(browser: Any, folder: Path) -> float:
    """Open a page of long texts, show all of each, print what that takes; returns the most."""
    texts = long_texts()
    made = trace(0, len(texts), 0, ReaderTokenizer(str(MICRO_STUDENT)))
    pool = [
        dataclasses.replace(one, id=f"t{number}", reasoning=text)
        for number, (one, text) in enumerate(zip(made.pool, texts.values(), strict=True))
    ]
    run, file = folder / "long", folder / "long.html"
    write_traces([dataclasses.replace(made, pool=pool)], run / TRACES_FOLDER)
    (run / "config.yaml").write_text(dump_config(RunConfig()), encoding="utf-8")
    write_page(run, file)
    page = browser.new_page()
    page.set_default_timeout(600_000)
    renderer = Renderer(browser)
    page.goto(f"{file.as_uri()}#traces/0/0")
    took = {}
    for number, name in enumerate(texts):
        button = page.locator(f'[id="r:t{number}"] .more').first
        cpu = renderer.cpu_s
        took[name] = button.evaluate(SHOWN_S), renderer.cpu_s - cpu
        button.evaluate("button => button.click()")  # and hide it again
    page.close()
    each = ", ".join(f"{name} {wall:.2f} ({cpu:.2f})" for name, (wall, cpu) in took.items())
    print(f"Seconds (CPU of the page) until all of a text is shown: {each}")
    return max(wall for wall, _ in took.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=int, default=2000)
    parser.add_argument("--k", type=int, default=16, help="trajectories a problem")
    parser.add_argument("--d", type=int, default=4, help="deliberations a problem")
    parser.add_argument("--keep", type=Path, help="folder for the run and its page")
    chosen = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        sys.exit("There is no chromium: bash scripts/install_browser.sh")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = chosen.keep or Path(name)
        run, file = folder / "run", folder / "run.html"
        if not run.exists():
            write_run(run, chosen.traces, chosen.k, chosen.d, RESPONSE)
        took = write_page(run, file)
        print(
            f"{chosen.traces:,} traces, K={chosen.k}, D={chosen.d}: the command takes "
            f"{took.wall_s:.1f} s ({took.cpu_s:.1f} s of CPU) and {took.peak_mib:.0f} MiB, the "
            f"file has {file.stat().st_size / 1e6:.1f} MB",
            flush=True,
        )
        browser = driver.chromium.launch(
            executable_path=program, args=["--enable-precise-memory-info"], timeout=600_000
        )
        seconds, megabytes = look(browser, file, chosen.traces)
        seconds = max(seconds, show_long_texts(browser, folder))
        browser.close()
    if seconds >= MOST_S or megabytes >= MOST_MB:
        sys.exit(
            f"Not as promised: a list or a text within {MOST_S:.0f} s, and at most {MOST_MB} MB"
        )


if __name__ == "__main__":
    main()
