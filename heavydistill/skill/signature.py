"""Signs the folder of a skill, and checks the signature: a detached file in the OMS format.

OMS is the model signing format of OpenSSF. The signature covers each other file of the folder,
hidden ones too. Keys are PEM files with an elliptic curve key (P-256, P-384 or P-521), the private
one without a password. No network is used.

Not covered: signatures by an identity (Sigstore) or a certificate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError

SIGNATURE = "skill.oms.sig"


def signer(key: Path) -> Callable[[Path], object]:
    """Return a function that writes the signature of a folder into it.

    Raises:
        ConfigError: The key is not usable, or the package that signs is not installed.
    """
    library, hashing = _library()
    fix = "Make one: openssl ecparam -name prime256v1 -genkey -noout -out key.pem"
    with _usable(f"--sign: {key} is not a private key that can sign", fix):
        config = library.signing.Config().use_elliptic_key_signer(private_key=key)
    config.set_hashing_config(hashing)
    return lambda folder: config.sign(folder, folder / SIGNATURE)


def why_unverified(folder: Path, key: Path) -> str | None:
    """Return why the signature of a folder is not valid for a public key; None if it is.

    Raises:
        ConfigError: The key cannot be read, or the package that verifies is not installed.
    """
    library, hashing = _library()
    fix = "Make it from the private key: openssl ec -in key.pem -pubout -out key.pub"
    with _usable(f"--key: {key} is not a public key", fix):
        config = library.verifying.Config().use_elliptic_key_verifier(public_key=key)
    try:
        config.set_hashing_config(hashing).verify(folder, folder / SIGNATURE)
    except Exception as error:
        if not str(error).startswith("Signature mismatch"):
            return "it was not made with this key, or it is damaged"
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        paths = (path.relative_to(folder).as_posix() for path in files)
        which = ", ".join(path for path in paths if path in str(error)) or "some are missing"
        return f"the files are not those that were signed ({which})"
    return None


@contextlib.contextmanager
def _usable(what: str, fix: str) -> Iterator[None]:
    """Raise a ConfigError in place of whatever the libraries raise for a key."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what}: {error.strerror or error}", fix) from error
    except Exception as error:
        form = "a PEM file with an elliptic curve key (P-256, P-384, P-521) without a password"
        raise ConfigError(f"{what}: it is not {form}", fix) from error


def _library() -> tuple[Any, Any]:
    """Return the library and how it hashes: each file but the signature."""
    try:
        import model_signing
    except ImportError as error:
        raise ConfigError(
            f"Signatures need the package model-signing: {error}",
            "Install it: pip install 'heavydistill[skill]'",
        ) from error
    library: Any = model_signing
    hashing = library.hashing.Config()
    return library, hashing.set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)
