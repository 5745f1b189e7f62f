"""No test of the sandbox leaves anything behind."""

from leaving_nothing import (  # noqa: F401  (fixtures)
    a_busy_machine_ends_no_program,
    nothing_changed,
    nothing_left,
    nothing_left_behind,
    works,
)
