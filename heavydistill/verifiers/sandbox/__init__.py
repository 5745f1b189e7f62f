"""Where model-written programs run, and nowhere else.

    base             what every place offers: ``Sandbox``, ``Limits``, ``Ran``
    bubblewrap       this machine: namespaces, system call filter and limits of its own
    sandbox_fusion   a server of SandboxFusion, over HTTP

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
