"""Resources of an endpoint that its engines share: servers, rate limits and the transport."""

from __future__ import annotations

import resource

from heavydistill.config.models import Endpoint
from heavydistill.errors import ConfigError
from heavydistill.models.http.limits import Rates, Server, Servers
from heavydistill.models.http.transport import Transport, submit
from heavydistill.models.shared_resources import SharedResources

_OTHER_FILES = 256  # Number of files open in the pipeline, its processes and libraries


class EndpointClient:
    """The servers with their slots, the rate limits and the transport of an endpoint.

    Raises:
        ConfigError: The hard limit of open files does not allow a connection for each slot.
    """

    def __init__(self, endpoint: Endpoint, key: str) -> None:
        async def connected() -> Transport:
            return Transport(key, endpoint.timeout_s)

        _allow_open_files(files_needed(endpoint.slots))
        servers = [Server(url, endpoint.concurrency) for url in endpoint.urls]
        self.servers = Servers(servers, endpoint.timeout_s)
        self.rates = Rates(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self.transport = submit(connected()).result()

    def close(self) -> None:
        """Close the connections to the servers."""
        submit(self.transport.close()).result()


def files_needed(slots: int) -> int:
    """The number of open files that a run with as many requests in flight may need."""
    return _OTHER_FILES + 2 * slots  # the roles may have two clients


def _allow_open_files(needed: int) -> None:
    """Raise this process's soft limit of open files, which is 1,024 on many systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"The run may need {needed:,} open files, and this process may have {hard:,}",
            f"Raise the limit (ulimit -Hn {needed}, as root), or set a smaller "
            "endpoint.concurrency.",
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


_clients = SharedResources(EndpointClient.close)
close_client = _clients.give_back


def open_client(endpoint: Endpoint, key: str) -> EndpointClient:
    """The client of an endpoint and key, shared in this process; release it by ``close_client``."""
    limits = endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute
    same = endpoint.base_url, key, endpoint.timeout_s, *limits
    return _clients.borrow(same, lambda: EndpointClient(endpoint, key))
