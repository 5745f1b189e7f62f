"""Sandboxes for model-written programs: ``bubblewrap`` on this machine, or a ``sandbox_fusion``
server. ``session`` keeps an interpreter for a conversation, in the sandbox of this machine.

They fail closed: if the configured sandbox is not available, nothing runs, and the reason is
reported. There is no fallback.
"""

from __future__ import annotations

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox.base import Limits, Sandbox, SandboxResult

__all__ = ["Limits", "Sandbox", "SandboxResult", "open_sandbox"]


def open_sandbox(config: Sandboxing) -> Sandbox:
    """Return the configured sandbox; starts nothing and never raises."""
    if config.backend == "sandbox_fusion":
        from heavydistill.sandbox.sandbox_fusion import SandboxFusion

        return SandboxFusion(config.url or "")
    from heavydistill.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap()
