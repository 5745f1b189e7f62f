"""The command ``vllm`` for tests: as slow, as talkative and as hard to stop, without a model.

``install`` puts it, and an ``nvidia-smi`` with so many GPUs, into a folder for the search path.
It keeps what it was asked in that folder. FAKE_VLLM tells it to go wrong: ``dies`` while it loads,
``stays`` loading, ``other`` serves another model, ``slow`` and ``hangs`` on requests, or ``ends:N``
after so many. FAKE_VLLM_WEIGHTS names the weights that it has behind the name of its model.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOADING_S = 1.5
_ENGINE = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), exit()))"


def install(folder: Path, gpus: int) -> dict[str, str]:
    """The environment in which the fakes are found."""
    folder.mkdir(exist_ok=True)
    listing = "".join(f"echo 'GPU {n}: Fake 80GB (UUID: GPU-{n}abc)'\n" for n in range(gpus))
    scripts = {
        "nvidia-smi": f"#!/bin/sh\necho asked >> {folder}/listed\n{listing}",
        "vllm": f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n',
    }
    for name, text in scripts.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "FAKE_VLLM_FOLDER": str(folder)}


def asked(folder: Path) -> list[dict[str, Any]]:
    """The bodies of the requests so far, with the process that answered them as ``pid``."""
    file = folder / "requests.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def gpus_listed(folder: Path) -> int:
    """How often ``nvidia-smi`` was asked so far."""
    file = folder / "listed"
    return len(file.read_text().splitlines()) if file.exists() else 0


def _main() -> None:
    from fake_server import completion, serving
    from loopback import Handler

    Handler.weights = os.environ.get("FAKE_VLLM_WEIGHTS", "")
    arguments, how = sys.argv[1:], os.environ.get("FAKE_VLLM", "")
    folder = Path(os.environ["FAKE_VLLM_FOLDER"])
    (folder / "arguments.json").write_text(json.dumps(arguments))
    of = dict(itertools.pairwise(arguments))
    # As vLLM's engine: a process of its own, in a session of its own, that takes its time.
    subprocess.Popen([sys.executable, "-c", f"{_ENGINE}; time.sleep(600)"], start_new_session=True)
    for percent in range(0, 100, 20):
        print(f"Loading safetensors checkpoint shards: {percent}%", flush=True)
        time.sleep(LOADING_S / 5)
    if how == "dies":
        print("WARNING Found ulimit of 7, which may lead to `OSError: [Errno 24]`")
        print("ValueError: No available memory for the cache blocks.\nstack\n[/core.py:7]")
        sys.exit(1)
    while how == "stays":
        time.sleep(1)

    def answer(body: dict[str, Any]) -> Any:
        with (folder / "requests.jsonl").open("a") as file:
            file.write(json.dumps({**body, "pid": os.getpid()}) + "\n")
        if how.startswith("ends:") and len(asked(folder)) > int(how.removeprefix("ends:")):
            time.sleep(3)  # those before get their answers, on a busy machine too
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep({"slow": 2, "hangs": 600}.get(how, 0))
        return completion("\\boxed{2}", reasoning="one and one")

    name = "other" if how == "other" else of["--served-model-name"]
    adapters = [json.loads(word)["name"] for word in arguments if word.startswith("{")]
    about = {"object": "model", "max_model_len": int(of["--max-model-len"])}
    models = 200, {"object": "list", "data": [{"id": id, **about} for id in (name, *adapters)]}
    with serving(answer, models, int(of["--port"])):
        print("Application startup complete.", flush=True)
        signal.pause()


if __name__ == "__main__":
    _main()
