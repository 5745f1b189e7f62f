"""Programs of heavydistill for a shell, forked from a process that has imported what they need.

Importing torch and its kind takes seconds, and the pages of the documentation give dozens of
commands. ``forking`` puts ``heavydistill`` and ``python`` into a folder for PATH. Both send their
words, folder, environment and open files to a server, which forks, runs them and sends back the
exit code.
"""

import atexit
import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_CLIENT = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = json.dumps(["{program}", sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(asked)
    sys.exit(int(server.makefile().read() or 1))
"""


@contextlib.contextmanager
def forking(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The folder with both programs, as long as the server runs; ``environment`` is that of it."""
    address = str(folder / "server")
    for program in ("heavydistill", "python"):
        path = folder / program
        path.write_text(_CLIENT.format(python=sys.executable, address=address, program=program))
        path.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address], env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout and server.stdout.readline() == "ready\n"
        yield folder
        server.terminate()


def _serve(address: str) -> None:
    import datasets  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401

    import heavydistill.run.generate  # noqa: F401
    from heavydistill.cli import verbs  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes below
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            client, _ = server.accept()
            with client:
                if os.fork() == 0:
                    server.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _answer(client)
                    os._exit(0)


def _answer(client: socket.socket) -> None:
    """Run what a client asks for in a process of its own, and send its exit code."""
    size, files, *_ = socket.recv_fds(client, 8, 3)
    with client.makefile("rb") as reader:
        asked = json.loads(reader.read(int.from_bytes(size, "big")))
    if (child := os.fork()) == 0:
        for number, file in enumerate(files):
            os.dup2(file, number)
        os._exit(_run(*asked))
    _, status = os.waitpid(child, 0)
    client.sendall(str(abs(os.waitstatus_to_exitcode(status))).encode())


def _run(program: str, words: list[str], folder: str, environment: dict[str, str]) -> int:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code: Any = 0
    try:
        if program == "heavydistill":
            from heavydistill.cli.app import main

            sys.argv = [program, *words]
            main()
        else:
            _run_python(words)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return int(code or 0)


def _run_python(words: list[str]) -> None:
    """As the interpreter does it, of a file, of ``-c``, or of what comes by the standard input."""
    first, *rest = words or ["-"]
    sys.path.insert(0, str(Path(first).parent) if Path(first).is_file() else "")
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first in ("-", "-c"):
        sys.argv = [first, *rest[first == "-c" :]]
        exec(compile(rest[0] if first == "-c" else sys.stdin.read(), "<string>", "exec"), {})
    else:
        sys.argv = words
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
