"""Resources of an endpoint that its engines share: servers, rate limits and the transport."""

from __future__ import annotations

from heavydistill.config.models import Endpoint
from heavydistill.models.http.limits import Rates, Server, Servers
from heavydistill.models.http.transport import Transport, submit
from heavydistill.models.shared_resources import SharedResources


class EndpointClient:
    """The servers with their slots, the rate limits and the transport of an endpoint."""

    def __init__(self, endpoint: Endpoint, key: str) -> None:
        async def connected() -> Transport:
            return Transport(key, endpoint.timeout_s)

        servers = [Server(url, endpoint.concurrency) for url in endpoint.urls]
        self.servers = Servers(servers, endpoint.timeout_s)
        self.rates = Rates(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self.transport = submit(connected()).result()

    def close(self) -> None:
        """Close the connections to the servers."""
        submit(self.transport.close()).result()


_clients = SharedResources(EndpointClient.close)
close_client = _clients.give_back


def open_client(endpoint: Endpoint, key: str) -> EndpointClient:
    """The client of an endpoint and key, shared in this process; release it by ``close_client``."""
    limits = endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute
    same = endpoint.base_url, key, endpoint.timeout_s, *limits
    return _clients.borrow(same, lambda: EndpointClient(endpoint, key))
