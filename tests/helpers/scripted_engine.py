"""An engine without a model, for tests of those who ask one."""

from collections.abc import Callable

from heavydistill.models.request import Keep, Request, Response, discard


class ScriptedEngine:
    """Answers by a function of (request, how often its prompt was asked before)."""

    is_drained = False

    def __init__(self, answer: Callable[[Request, int], Response], revision: str = "") -> None:
        self._answer, self.revision = answer, revision
        self.requests: list[Request] = []

    def generate(self, requests: list[Request], keep: Keep = discard) -> list[Response]:
        responses = []
        for request in requests:
            before = sum(each.messages == request.messages for each in self.requests)
            self.requests.append(request)
            responses.append(self._answer(request, before))
            keep([(request, responses[-1])])
        return responses

    def drain(self) -> None: ...

    def close(self) -> None: ...
