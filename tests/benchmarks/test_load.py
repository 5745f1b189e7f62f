"""The benchmark runs, and checks itself that the service loses nothing."""

import re

from command_line import benchmark


def test_many_conversations_get_their_answers_and_each_answer_has_a_row():
    small = ["--seconds=2", "--conversations=8", "--mean-s=0.05", "--chunks=4"]
    printed = benchmark("load.py", *small)
    answers, errors = re.findall(r"heavydistill heavy +(\d+) +(\d+)", printed)[0]
    assert int(answers) >= 8 and int(errors) == 0
