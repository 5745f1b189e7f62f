"""The benchmark of the page runs, on a small run."""

from browsing import need_browser
from command_line import benchmark


def test_the_page_is_measured():
    need_browser()
    printed = benchmark("page.py", "--traces", 12, "--k", 2, "--d", 1, may_be_slow=True)
    assert "12 traces, K=2, D=1" in printed
    assert "0 found in 12 of 12 searched" in printed and "during the search" in printed
    assert "5 M of one character" in printed and "5 M of base64" in printed
