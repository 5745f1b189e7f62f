"""Installed packages in the sandbox: which are there, and that nobody can write to them."""

import pytest
from sandboxing import attempted

pytestmark = pytest.mark.usefixtures("works", "nothing_left")


def test_a_package_and_what_it_needs_are_read_only():
    said = attempted(
        """
        said["there"] = sorted(os.listdir("/packages"))
        import mpmath, numpy, sympy
        said["sum"] = int(numpy.arange(4).sum() + sympy.Integer(1) + mpmath.mpf(2))
        for name in ("numpy/__init__.py", "numpy/new.py", "new.py"):
            said[name] = attempt(lambda name=name: open(f"/packages/{name}", "a"))
        """,
        memory_mb=512,
        cpu_s=60,
    )
    assert said["sum"] == 9
    assert {"mpmath", "numpy", "sympy"} <= {*said["there"]}
    assert "pytest" not in said["there"] and "pip" not in said["there"]
    for name in ("numpy/__init__.py", "numpy/new.py", "new.py"):
        assert said[name][0] == "refused"


def test_a_program_that_mentions_none_has_none():
    said = attempted("said['there'] = os.path.exists('/packages')")
    assert said == {"there": False}
