"""Plug-ins of each kind for heavydistill."""
