"""Plug-ins that a test loads are not there for the next one."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from heavydistill import plugins


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Forget at the end what was loaded in between."""
    with (
        mock.patch.dict(plugins.loaded),
        mock.patch.dict(plugins.broken),
        mock.patch.dict(plugins._files),
        mock.patch.object(plugins, "_installed", [*plugins._installed]),
        mock.patch.object(plugins, "_defined", [*plugins._defined]),
    ):
        yield
