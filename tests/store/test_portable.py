"""What others read of a source: its name, wherever it is looked at from."""

import pytest

from heavydistill.store.redact import name_alone


@pytest.mark.parametrize("given", ["out/sft", "./out/sft", "../here/out/sft", "{}/out/sft"])
def test_a_folder_is_its_last_name(given, tmp_path, monkeypatch):
    here = tmp_path / "here"
    (here / "out" / "sft").mkdir(parents=True)
    monkeypatch.chdir(here)
    assert name_alone(given.format(here)) == "sft"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/gone/sft", "sft"),
        ("../gone/sft", "sft"),
        ("accounts/provider/models/large", "accounts/provider/models/large"),
        ("org/model", "org/model"),
        ("micro", "micro"),
        ("gym:chain_sum", "gym:chain_sum"),
    ],
)
def test_what_is_not_here_is_known_by_its_shape(given, name):
    assert name_alone(given) == name
