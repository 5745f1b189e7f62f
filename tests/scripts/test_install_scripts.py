"""The scripts that install packages of the system, with package managers of ours."""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
USED = ("bash", "cat", "chmod", "dirname", "rm")


@dataclasses.dataclass(frozen=True)
class Script:
    """A script, the package that it installs, and the command that is there then."""

    name: str
    package: str
    command: str

    def run(self, path: Path) -> tuple[int, str]:
        """Its exit code and what it says, with these commands alone."""
        done = subprocess.run(
            ["bash", str(SCRIPTS / self.name)],
            env={"PATH": str(path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert not done.stdout
        return done.returncode, done.stderr

    def puts_it_into(self, path: Path) -> str:
        return f"echo '#!/bin/sh' > {path}/{self.command}; chmod 755 {path}/{self.command}"


@pytest.fixture(
    params=[
        Script("install_sandbox.sh", "bubblewrap", "bwrap"),
        Script("install_browser.sh", "chromium", "chromium"),
    ],
    ids=lambda script: script.package,
)
def script(request: pytest.FixtureRequest) -> Script:
    found: Script = request.param
    return found


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A PATH with little in it, and root as the user."""
    for name in USED:
        os.symlink(str(shutil.which(name)), tmp_path / name)
    _add(tmp_path, "id", "echo 0")
    return tmp_path


def _add(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_where_it_is_nothing_is_done(commands, script):
    _add(commands, script.command, "exit 9")
    _add(commands, "apt-get", "echo no >&2; exit 9")
    assert script.run(commands) == (0, "")


def test_a_machine_without_lists_of_packages_gets_them_first_and_dnf_is_known(commands, script):
    body = f"""
        case "$*" in
          update*) : > {commands}/lists;;
          install*{script.package}) [ -e {commands}/lists ] || exit 100
            {script.puts_it_into(commands)};;
          *) exit 9;;
        esac"""
    _add(commands, "apt-get", body)
    code, said = script.run(commands)
    assert code == 0 and "installing" in said
    for name in ("apt-get", script.command):
        (commands / name).unlink()
    _add(commands, "dnf", script.puts_it_into(commands))
    assert script.run(commands)[0] == 0


@pytest.mark.parametrize("manager", [None, "apt-get", "dnf"])
def test_what_to_do_is_said_where_it_cannot_be_installed(commands, script, manager):
    if manager:
        _add(commands, manager, "echo 'no network' >&2; exit 100")
    code, said = script.run(commands)
    assert code == 1
    assert "warning" in said and f"apt-get install {script.package}" in said and "dnf" in said


def test_nobody_is_asked_for_a_password(commands, script):
    _add(commands, "id", "echo 1000")
    _add(commands, "sudo", '[ "$1" = -n ] && exit 1; echo asked >&2; exit 9')
    _add(commands, "apt-get", "echo installed >&2")
    code, said = script.run(commands)
    assert code == 1 and "asked" not in said and "installed\n" not in said
