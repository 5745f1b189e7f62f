"""An exported skill, a foreign one, and keys."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from heavydistill.skill.export import export_skill

FOREIGN = """\
---
name: other
description: Use it for sums.
---

# Sums

Add the numbers. See [the notes](references/notes.md).
"""


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The skill with all wordings; not to be changed."""
    return export_skill(
        tmp_path_factory.mktemp("skills"), ["general", "stem", "code"], ["en", "zh"]
    )


@pytest.fixture
def ours(exported: Path, tmp_path: Path) -> Path:
    """A copy of the exported skill."""
    return Path(shutil.copytree(exported, tmp_path / exported.name))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A skill that heavydistill did not write, with nothing to refuse."""
    folder = tmp_path / "other"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(FOREIGN, encoding="utf-8")
    (folder / "references/notes.md").write_text("Carry the one.\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Called with a name: a private key and its public key; "rsa" and "password" cannot be used."""
    folder, form = tmp_path_factory.mktemp("keys"), pem.Encoding.PEM

    @functools.cache
    def make(name: str) -> tuple[Path, Path]:
        key = rsa.generate_private_key(65537, 2048) if name == "rsa" else None
        key = key or ec.generate_private_key(ec.SECP256R1())
        lock = pem.BestAvailableEncryption(b"x") if name == "password" else pem.NoEncryption()
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        private.write_bytes(key.private_bytes(form, pem.PrivateFormat.PKCS8, lock))
        content = key.public_key().public_bytes(form, pem.PublicFormat.SubjectPublicKeyInfo)
        public.write_bytes(content)
        return private, public

    return make
