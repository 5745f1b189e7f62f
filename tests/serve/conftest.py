"""A service before a server whose replies a test chooses."""

from collections.abc import Iterator

import openai
import pytest
from fault_server import FaultServer, faulty
from serving import serving


@pytest.fixture(scope="module")
def models() -> Iterator[FaultServer]:
    with faulty() as server:
        yield server


@pytest.fixture(scope="module")
def address(models) -> Iterator[str]:
    with serving(models.base_url) as at:
        yield at


@pytest.fixture
def client(address) -> openai.OpenAI:
    return openai.OpenAI(base_url=address, api_key="none", max_retries=0)
