"""Filters of problems and responses. They label what must not be learnt from and delete nothing."""
