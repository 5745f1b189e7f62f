"""Runs programs on the user's own server of SandboxFusion, over HTTP.

The program is sent to ``POST /run_code`` as ``main.py`` together with the launcher, which limits
processor time and address space on the server. The server limits the wall-clock time and determines
everything else: the isolation, the Python version and the packages.

A fault of the connection or the server, or a response that is too long, gives the result
``unavailable`` with the reason.

Not covered: output that is not UTF-8 (the server returns text); counting files; starting or
updating a server.
"""

from __future__ import annotations

import base64
import json
import math
import signal
from collections.abc import Mapping
from typing import Any

import requests

from heavydistill.sandbox.base import LAUNCHER, Limits, Sandbox, SandboxResult, unavailable

_CONNECT_S = _PING_S = 10.0
# Added to the program's time, because the server may queue the request.
_QUEUE_S = 60.0
# The server keeps at most this much of each output, and does not report that it was cut.
_KEPT_BYTES = 1 << 20
# JSON encodes a character of output in up to six bytes.
_MOST_ANSWER_BYTES = 2 * 6 * _KEPT_BYTES + (1 << 16)
_CHUNK = 1 << 16


class SandboxFusion(Sandbox):
    """A SandboxFusion server at ``url``, e.g. ``http://localhost:8080``."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def unavailable(self) -> str | None:
        try:
            answer = requests.get(f"{self._url}/v1/ping", timeout=_PING_S)
        except requests.RequestException as error:
            why = type(error).__name__
        else:
            if answer.status_code == 200:
                return None
            why = f"HTTP {answer.status_code}"
        return (
            f"no server of SandboxFusion answers at {self._url} ({why}). Start it, or correct "
            "verify.sandbox.url."
        )

    def run(self, files: Mapping[str, str], limits: Limits) -> SandboxResult:
        job: dict[str, Any] = {
            "language": "python",
            "code": f"{LAUNCHER}\nstart({math.ceil(limits.cpu_s)}, {limits.memory_mb << 20})\n",
            "files": {
                name: base64.b64encode(text.encode()).decode() for name, text in files.items()
            },
            "stdin": "",
            "run_timeout": limits.wall_s,
        }
        timeout_s = (_CONNECT_S, limits.wall_s + _QUEUE_S)
        try:
            with requests.post(
                f"{self._url}/run_code", json=job, timeout=timeout_s, stream=True
            ) as response:
                response.raise_for_status()
                body = bytearray()
                for chunk in response.iter_content(_CHUNK):
                    body += chunk
                    if len(body) > _MOST_ANSWER_BYTES:
                        raise ValueError(
                            f"the server's answer has more than {_MOST_ANSWER_BYTES} bytes"
                        )
            return _read(json.loads(body), limits)
        except (requests.RequestException, ValueError) as error:
            return unavailable(f"SandboxFusion: {type(error).__name__}: {str(error)[:200]}")


def _read(answer: Any, limits: Limits) -> SandboxResult:
    """Convert the server's response to the result of a run."""
    result = answer.get("run_result") if isinstance(answer, dict) else None
    if not isinstance(result, dict) or answer.get("status") not in ("Success", "Failed"):
        message = answer.get("message") if isinstance(answer, dict) else answer
        return unavailable(f"SandboxFusion: {str(message)[:200]}")
    out, err = (_bytes(result.get(name)) for name in ("stdout", "stderr"))
    most = min(limits.output_bytes, _KEPT_BYTES - 1)
    kept = out[: limits.output_bytes], err[: limits.output_bytes]
    if result.get("status") == "TimeLimitExceeded":
        return SandboxResult("wall", -1, *kept)
    code = result.get("return_code")
    if result.get("status") != "Finished" or type(code) is not int:
        return unavailable(f"SandboxFusion: status {result.get('status')}, code {code}")
    if max(len(out), len(err)) > most:
        return SandboxResult("output", -1, *kept)
    number = -code if code < 0 else code - 128  # number of the signal, as in Python or a shell
    if number == signal.SIGXCPU:
        return SandboxResult("cpu", -1, *kept)
    return (
        SandboxResult("signal", number, *kept) if number > 0 else SandboxResult("exit", code, *kept)
    )


def _bytes(text: Any) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
