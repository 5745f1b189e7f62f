"""Signs the folder of a skill, and checks the signature: a detached file in the OMS format.

OMS is the model signing format of OpenSSF. The signature covers each other file of the folder,
hidden ones too. Keys are PEM files with an elliptic curve key (P-256, P-384 or P-521), the private
one without a password. No network is used.

Not covered: signatures by an identity (Sigstore) or a certificate.
"""

from __future__ import annotations

from collections.abc import Callable
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
    try:
        config = library.signing.Config().use_elliptic_key_signer(private_key=key)
    except Exception as error:  # the library raises whatever its own libraries raise
        raise ConfigError(
            f"--sign: {key} is not a private key that can sign: {_fault_of_key(error)}",
            "Make one: openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
        ) from error
    config.set_hashing_config(hashing)
    return lambda folder: config.sign(folder, folder / SIGNATURE)


def why_unverified(folder: Path, key: Path) -> str | None:
    """Return why the signature of a folder is not valid for a public key; None if it is.

    Raises:
        ConfigError: The key cannot be read, or the package that verifies is not installed.
    """
    library, hashing = _library()
    try:
        config = library.verifying.Config().use_elliptic_key_verifier(public_key=key)
    except Exception as error:
        raise ConfigError(
            f"--key: {key} is not a public key: {_fault_of_key(error)}",
            "Make it from the private key: openssl ec -in key.pem -pubout -out key.pub",
        ) from error
    try:
        config.set_hashing_config(hashing).verify(folder, folder / SIGNATURE)
    except Exception as error:
        if not str(error).startswith("Signature mismatch"):
            return "it was not made with this key, or it is damaged"
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        paths = [path.relative_to(folder).as_posix() for path in files]
        changed = [path for path in paths if path in str(error)]
        return (
            f"the files are not those that were signed ({', '.join(changed) or 'some are missing'})"
        )
    return None


def _fault_of_key(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is no PEM file with an elliptic curve key (P-256, P-384, P-521) without a password"


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
