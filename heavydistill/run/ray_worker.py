"""The worker of a step on a Ray cluster: what it takes over from the driver, and its end."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

import ray
from distilabel.pipeline.base import set_pipeline_running_env_variables
from distilabel.utils.logging import setup_logging

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, JournalError
from heavydistill.run.mailboxes import Mailbox
from heavydistill.run.worker import OverlappingWrapper, failure_of


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker takes over from the driver; see ``ray``.

    Attributes:
        version: Of this package.
        folder: The working folder.
        tokens: Files in journals that the driver has just made.
        environment: Variables; their values are secret.
    """

    version: str
    folder: Path
    tokens: tuple[Path, ...]
    environment: dict[str, str] = field(repr=False)

    def take_over(self) -> None:
        """Make this process like the driver's.

        Raises:
            ConfigError: Another version of this package is installed here, or the folder is not
                here.
            JournalError: A journal here is not the driver's.
        """
        host = socket.gethostname()
        if heavydistill.__version__ != self.version:
            raise ConfigError(
                f"Node {host} has heavydistill {heavydistill.__version__}, the driver "
                f"{self.version}",
                "Install the same version on all nodes.",
            )
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ConfigError(
                f"Node {host} cannot enter the working folder {self.folder}: {error.strerror}",
                "Give the command from a folder that all nodes see under the same path.",
            ) from error
        for token in self.tokens:
            if not token.exists():
                raise JournalError(
                    f"Node {host} does not see the journal {token.parent} as the driver does",
                    "Name one on a file system that all nodes share: --journal FOLDER.",
                )
        # Ray allows one thread to a worker that names no processors.
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ.update(self.environment)


@dataclass(frozen=True, slots=True)
class End:
    """How a worker ended.

    Attributes:
        node: Where it ran: address, and the first digits of the node's id.
        batches: That it worked off.
        failure: Why it ended too early, if it did.
    """

    node: str
    batches: int
    failure: HeavydistillError | None


class RayWrapper(OverlappingWrapper):
    """Looks less often for what is to be done: each look is a call over the network."""

    poll_s = 1.0
    on_ray = True


class Worker:
    """The actor of one replica of a step."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._wrapper: RayWrapper | None = None
        self._drains = False

    def node(self) -> str:
        """Where this is."""
        return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:6]})"

    def run(self, wrapper: RayWrapper, log_queue: Mailbox, name: str, signature: str) -> End:
        """Work until the step is done, drained or broken."""
        self._wrapper = wrapper
        if self._drains:  # it was told before this could begin
            wrapper.drain()
        setup_logging(log_queue=log_queue)
        set_pipeline_running_env_variables(name, signature)
        try:
            self._surroundings.take_over()
            failure = failure_of(wrapper)
        except HeavydistillError as error:
            failure = error
        return End(self.node(), wrapper.batches, failure)

    def drain(self) -> None:
        """Let ``run`` end as soon as nothing is in flight; for a step that asks a model."""
        self._drains = True
        if self._wrapper:
            self._wrapper.drain()
