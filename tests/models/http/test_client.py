"""The open files that a client of an endpoint needs."""

import resource

import pytest

from heavydistill.config.models import Endpoint
from heavydistill.errors import ConfigError
from heavydistill.models.http.client import close_client, open_client

ENDPOINT = Endpoint(base_url="http://localhost:1/v1", concurrency=2048)


@pytest.fixture
def limits(monkeypatch):
    """The limits of open files, soft and hard, in place of this process's own."""
    kept = {"now": (1024, 524_288)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: kept["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: kept.update(now=both))
    return kept


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 524_288), (4352, 524_288)),
        ((1024, resource.RLIM_INFINITY), (4352, resource.RLIM_INFINITY)),
        ((8192, 524_288), (8192, 524_288)),
        ((resource.RLIM_INFINITY,) * 2, (resource.RLIM_INFINITY,) * 2),
    ],
)
def test_a_client_may_open_a_connection_for_each_slot(limits, before, after):
    limits["now"] = before
    close_client(open_client(ENDPOINT, "key"))
    assert limits["now"] == after


def test_a_hard_limit_below_the_slots_is_said_before_a_request(limits):
    limits["now"] = 1024, 4096
    with pytest.raises(ConfigError, match=r"4,352 open files, and this process may have 4,096"):
        open_client(ENDPOINT, "key")
    assert limits["now"] == (1024, 4096)
