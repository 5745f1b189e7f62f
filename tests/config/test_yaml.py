"""What a message says of a refused value, without its keys."""

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from heavydistill.config.models import Endpoint
from heavydistill.config.run import load_config
from heavydistill.config.sets import RefilterConfig, load_build_config
from heavydistill.config.yaml import load
from heavydistill.errors import ConfigError

SECRET = "Sw0rdfish"
ADDRESSES = (
    f"http://user:{SECRET}@host/v1", f"http://{SECRET}@host/v1", f"https://user:a/{SECRET}@host/v1",
    f"http://host/v1?key={SECRET}", f"http://host/v1#{SECRET}",
    f"http://one/v1,http://user:{SECRET}@two/v1", f"http://one/v1,http://two/v1?key={SECRET}",
    [f"http://user:{SECRET}@host/v1"],
)  # fmt: skip


def refusal(read: Callable[[], object]) -> str:
    """The message, checked for the secret with all that a traceback would print of it."""
    with pytest.raises(ConfigError) as caught:
        read()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "key", ["endpoint.base_url", "judge.endpoint.base_url", "verify.sandbox.url"]
)
def test_an_address_with_a_key_in_it_is_refused_and_not_shown(key, address):
    told = refusal(lambda: load_config(None, {key: address, "judge.model": "m"}))
    assert told.startswith(f"{key}: must begin with http:// or https://")


def test_neither_is_one_in_a_file_nor_where_a_checkpoint_or_a_build_asks(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(f"endpoint:\n  base_url: {ADDRESSES[0]}\n")
    assert refusal(lambda: load_config(file)).startswith(f"{file}, line 2: endpoint.base_url: must")
    at = {"endpoint.base_url": ADDRESSES[0], "sets": "s", "checkpoint": "c", "out": "o"}
    assert refusal(lambda: load(RefilterConfig, overrides=at)).startswith(
        "endpoint.base_url: must begin"
    )
    of_build = {"redeliberate.endpoint.base_url": ADDRESSES[0], "runs": ["r"], "out": "o"}
    told = refusal(lambda: load_build_config(None, of_build))
    assert told.startswith("redeliberate.endpoint.base_url: must begin")
    told = refusal(lambda: Endpoint(base_url=ADDRESSES[0]))
    assert told.startswith("base_url: must begin")


def test_a_line_that_is_not_yaml_is_numbered_and_not_shown(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(f"seed: 1\nendpoint: {{base_url: [{ADDRESSES[0]}\n")
    told = refusal(lambda: load_config(file))
    assert told.startswith(f"{file} is not YAML: line 3, column 1: while parsing")


def test_an_address_in_place_of_a_section_is_not_shown():
    assert "takes keys, not a text" in refusal(
        lambda: load_config(None, {"endpoint": ADDRESSES[0]})
    )


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:8000/v1",
        "https://a.example/api/@me/v1,http://10.0.0.1:80",
        "http://[::1]:8000/v1",
        "openrouter",
    ],
)
def test_an_address_without_is_accepted(address):
    assert load_config(None, {"endpoint.base_url": address}).endpoint.base_url == address


@pytest.mark.parametrize(
    "key", [f"sk-{SECRET}", f"gsk_{SECRET}", f"{SECRET}", f"hf_{SECRET}", "0123abc", ["A_KEY"]]
)
def test_a_key_in_place_of_the_name_of_its_variable_is_refused_and_not_shown(key):
    told = refusal(lambda: load_config(None, {"endpoint.api_key_env": key}))
    assert "must be the name of an environment variable" in told and str(key) not in told


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "_K2", "my_key"])
def test_the_name_of_a_variable_is_accepted(name):
    assert load_config(None, {"endpoint.api_key_env": name}).endpoint.key_env == name


@pytest.mark.parametrize("budget", ["25 euros", "25usd\n", 25])
def test_a_text_of_another_form_is_told_in_words_what_it_must_be(budget):
    told = refusal(lambda: load_config(None, {"budget": budget}))
    assert (
        f"budget: must be US dollars or tokens, e.g. 25usd, 500ktok or 40Mtok (got {budget!r})"
        in told
    )


def test_no_field_shows_a_pattern():
    """Patterns of pydantic's own would be printed as they are."""
    package = Path(__file__).parents[2] / "heavydistill"
    assert not [path for path in package.rglob("*.py") if "pattern=r" in path.read_text()]
