"""Subcommand ``serve``: heavy mode behind an OpenAI-compatible address."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from heavydistill.cli.flags import Flag, RunFile, with_flags
from heavydistill.config.run import refuse_code_of_saved
from heavydistill.config.serve import ServeConfig
from heavydistill.config.shipped import shipped_file
from heavydistill.config.yaml import load
from heavydistill.errors import ConfigError
from heavydistill.report.terminal import going_on, print_lines, say
from heavydistill.run import interrupts

if TYPE_CHECKING:
    from heavydistill.serve.service import Service

_OF_AN_ADDRESS = {f"serve.{name}": f"--{name}" for name in ("host", "port", "page")}


@with_flags(
    ServeConfig,
    (
        Flag("thinker"),
        Flag("deliberator"),
        Flag("endpoint.base_url", name="endpoint"),
        Flag("think.k"),
        Flag("serve.host"),
        Flag("serve.port"),
        Flag("serve.out"),
        Flag("serve.page"),
        Flag("serve.verifier", "Answers"),
        Flag("teacher", "Models"),
        Flag("endpoint.start_vllm", "Models"),
        Flag("endpoint.tokenizer", "Models"),
        Flag("prompts", "Models", "prompt"),
        Flag("plugins", "Models", "plugin"),
    ),
    "serve.grace_s=20",
)
def serve(
    keys: dict[str, object],
    *,
    config: RunFile = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Offer tools to an agent over stdio, at no address.")
    ] = False,
) -> None:
    """Serve a thinker and a deliberator as one OpenAI-compatible model.

    The model heavy answers with a deliberation over K attempts, vote with their most frequent
    answer, and single with one attempt. The configuration of a run serves with its wordings, cache
    and sampling. The command ends with Ctrl-C.
    """
    if mcp:
        _refuse_address(keys)
    file = shipped_file("generate", config) if config else None
    asked = load(ServeConfig, file, keys)
    if file:
        refuse_code_of_saved(file, asked, "name them with --plugin, or --set verify.own=[FILE]")
    from heavydistill.serve.app import Site
    from heavydistill.serve.service import Service

    console, service = Console(stderr=mcp), Service(asked)  # an agent reads standard output
    with interrupts.as_exceptions(), contextlib.ExitStack() as stack:
        stack.callback(service.close)
        has_ended = _ended_of_agent(service, stack) if mcp else lambda: False
        address = "" if mcp else stack.enter_context(Site(service).listening())
        where = f"Listening at {address}" if address else "Offering tools to an agent"
        say(f"{where}; loading the models", console)
        starts = f"Starting vLLM; its log is {service.server_log}"
        with going_on(starts, asked.endpoint.start_vllm and not mcp):
            service.load()
        ready = f"{address} answers as heavy, vote and single" if address else "heavy_think answers"
        with contextlib.suppress(KeyboardInterrupt):
            print_lines(service.notes(), console)
            say(f"Ready: {ready}. Ctrl-C ends it.", console)
            service.wait(has_ended)
        say("Stopping; requests in progress are cancelled", console)
    print_lines(service.figures.lines(), console)


def _refuse_address(keys: dict[str, object]) -> None:
    """Raise ConfigError if a flag sets an address, which --mcp has none of."""
    if flags := ", ".join(_OF_AN_ADDRESS[key] for key in sorted(keys.keys() & _OF_AN_ADDRESS)):
        raise ConfigError(
            f"--mcp offers tools at no address, so {flags} would have no effect",
            f"Leave out either --mcp or {flags}.",
        )


def _ended_of_agent(service: Service, stack: contextlib.ExitStack) -> Callable[[], bool]:
    """Offer the tools of MCP; returns whether the agent has gone."""
    try:
        from heavydistill.serve.mcp import serving_tools
    except ImportError as error:
        install = "pip install 'heavydistill[serve]'"
        raise ConfigError(
            f"--mcp needs the package mcp: {error}", f"Install it: {install}."
        ) from error
    return stack.enter_context(serving_tools(service))
