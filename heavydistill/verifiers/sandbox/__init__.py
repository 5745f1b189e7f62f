"""Where model-written programs run: ``bubblewrap`` on this machine, or a ``sandbox_fusion`` server.

It fails closed. Where the place that was chosen cannot be had, nothing runs and the reason is
said; there is no other place to fall back to.
"""

from __future__ import annotations

from heavydistill.config.run import Sandboxing
from heavydistill.verifiers.sandbox.base import Limits, Ran, Sandbox

__all__ = ["Limits", "Ran", "Sandbox", "open_sandbox"]


def open_sandbox(config: Sandboxing) -> Sandbox:
    """The place that the configuration names; opening it starts nothing and never raises."""
    if config.backend == "sandbox_fusion":
        from heavydistill.verifiers.sandbox.sandbox_fusion import SandboxFusion

        return SandboxFusion(config.url or "")
    from heavydistill.verifiers.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap()
