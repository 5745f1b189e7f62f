"""Filters of problems and responses. They only label what to exclude, and delete nothing."""
