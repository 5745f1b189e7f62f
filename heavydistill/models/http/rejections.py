"""Tells an endpoint that takes no request of the run from prompts that it does not take.

Providers refuse a wrong key, model or parameter with the same codes as what is in a prompt, and a
run that is given again begins with the prompts that were refused before. So prompts that are all
refused are a reason to ask a plain one, and what becomes of that is the answer.
"""

from __future__ import annotations

from heavydistill.errors import TeacherError
from heavydistill.models.request import Request, Response, plain_question
from heavydistill.store.journal import prompt_id

_PROMPTS = 3


class Rejections:
    """Watches the first responses of a model.

    Args:
        model: Who is asked.
        where: Its address.
    """

    def __init__(self, model: str, where: str) -> None:
        self._model, self._where = model, where
        self._prompts: set[str] | None = set()

    def doubts(self, request: Request, response: Response) -> Request | None:
        """The plain request to ask, once, when the first prompts are all refused."""
        if self._prompts is None:
            return None
        if response.failure is None:
            self._prompts = None
        elif response.failure == "rejected":
            self._prompts.add(prompt_id(request.messages))
            if len(self._prompts) == _PROMPTS:
                self._prompts = None
                return plain_question(request)
        return None

    def judge(self, response: Response) -> None:
        """Look at what became of the plain request.

        Raises:
            TeacherError: It is refused as well.
        """
        if response.failure == "rejected":
            raise TeacherError(
                f"{self._where} refuses all that is asked of {self._model}: {response.error}",
                "Correct the key, the name of the model or the parameter that it speaks of; "
                "`heavydistill doctor` finds out which parameters it takes.",
            )
