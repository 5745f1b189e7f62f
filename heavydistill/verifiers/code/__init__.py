"""The verifier ``code``: judges model-written Python by tests; see ``verifier``."""

from heavydistill.verifiers.code.verifier import Code

__all__ = ["Code"]
