"""Exports the sets of a build for other trainers; see ``export``."""
