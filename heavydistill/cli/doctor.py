"""``heavydistill doctor``: checks this machine and the endpoint of a run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from heavydistill.cli.flags import OtherBenchmark, RunFile, run_config, run_flags, with_flags
from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.config.run import RunConfig, Tools
from heavydistill.errors import ConfigError, TeacherError, UserError
from heavydistill.models import capabilities, registry
from heavydistill.models.contact import ServerProbe
from heavydistill.models.profiles import Profile, provider_at
from heavydistill.models.resolve import located, resolve
from heavydistill.models.tokenizer import (
    ESTIMATED,
    SERVER,
    ByteEstimate,
    ReaderTokenizer,
    ServerTokenizer,
)
from heavydistill.report.terminal import plain, print_command, print_table, say, table
from heavydistill.sandbox.session import SessionLimits, require_sessions

if TYPE_CHECKING:
    from heavydistill.doctor import Finding
    from heavydistill.doctor.endpoint import ExaminedModel
    from heavydistill.heavy.pruning import Reader

_PROBLEM = "What is 17 + 25 - 8?"
_STYLES = {"ok": "green", "warning": "yellow", "failure": "bold red"}


@with_flags(
    RunConfig,
    run_flags("--teacher", "--endpoint", "--start-vllm", "--tokenizer", "--out", "--journal"),
    "endpoint.api_key_env=MY_KEY",
)
def doctor(
    keys: dict[str, object], *, config: RunFile = None, benchmark: OtherBenchmark = None
) -> None:
    """Check this machine, the problems, and what the endpoint of the teacher supports.

    Takes the flags of generate. A served model is asked about ten small questions, and one that is
    as long as the planned cache. What a run must obey is written to a capability file, which every
    run that asks this model at this address reads. Exit code 0 if a run can go on, 1 if something
    must be fixed first, 2 if the problems cannot be used,
    or the endpoint cannot be reached or refuses every request.
    """
    console = Console()
    # Results of an earlier check must not influence this one.
    asked = run_config(keys, config, benchmark)
    endpoint = located(asked.endpoint).model_copy(update={"capabilities": Capabilities()})
    fresh = asked.model_copy(update={"endpoint": endpoint})
    _require_one_thinker(asked)
    results = []
    for title, findings, note in _sections(fresh, console):
        rows = table(console, "Check", "Result", "Finding", numbers=1)
        for finding in findings:
            advice = "Note" if finding.result == "ok" else "Fix"
            fix = [plain(f"{advice}: {finding.fix}")] if finding.fix else []
            text = Text("\n").join([plain(finding.text), *fix])
            rows.add_row(plain(finding.check), Text(finding.result, _STYLES[finding.result]), text)
        say(f"\n{title}", console)
        print_table(rows, console)
        if note:
            say(note, console)
        results += [finding.result for finding in findings]
    if asked.endpoint.capabilities:
        say("The configuration sets endpoint.capabilities, so runs ignore the findings.", console)
    failures, warnings = results.count("failure"), results.count("warning")
    ending = "fix the failures before a run" if failures else "a run can start"
    say(f"{failures} failure(s), {warnings} warning(s): {ending}.", console)
    if failures:
        raise typer.Exit(1)
    print_command("Next", ["heavydistill", "generate", *sys.argv[2:]], console)


def _require_one_thinker(config: RunConfig) -> None:
    if len(config.attempts_by_thinker) > 1:
        raise ConfigError(
            f"doctor examines one thinker at a time, not {config.thinker}",
            "Give each as --teacher, with --endpoint and the address of its server.",
        )


def _sections(config: RunConfig, console: Console) -> Iterator[tuple[str, list[Finding], str]]:
    """Yield (title, findings, note below) of each table, as soon as its checks end."""
    from heavydistill.doctor import Finding, machine
    from heavydistill.problems import load

    config.load_plugins()
    # Before anything large is loaded.
    number = 0 if config.pools else len(load(config.problems, config.verify))
    endpoint, roles = config.endpoint, config.roles
    models = {name: registry.profile_at(name, endpoint, config.sampling) for name in roles}
    contact = ServerProbe()
    for profile in models.values():
        if profile.kind == "endpoint":
            contact.require(profile.model, endpoint)
            if endpoint.batch:
                contact.require_batches(endpoint)
    out = Path(config.out or "runs/next")
    folders = [out.parent, Path(config.journal or out.parent / "journal")]
    files = [file for name in models if (file := registry.profile_file(name))]
    examined = machine.look(endpoint, folders, files)
    tool, think = config.think.tools.python, config.think.model_copy(update={"tools": Tools()})
    config = config.model_copy(update={"think": think})  # how tools are called is not known yet
    try:
        if tool:
            sandboxing = config.verify.sandbox
            require_sessions(SessionLimits.of(tool, sandboxing), config.processes, sandboxing)
        config = resolve(config, contact).config
        examined.append(_tokenizer(models[roles[1]], config.endpoint))
        if number:
            examined.append(Finding("problems", "ok", f"{number:,} from {config.problems.source}"))
    except UserError as error:
        examined.append(Finding("configuration", "failure", error.what, error.fix))
    yield "This machine, and the configuration", examined, ""
    for name, profile in models.items():
        context = capabilities.context_of(profile, endpoint, endpoint)
        patient = _patient(name, profile, config, context)
        patient = replace(patient, tools=tool is not None and name == roles[0])
        if profile.kind == "local":
            answers = machine.listen(profile, patient.samplings[0], patient.prompt)
            yield f"{name}, in this process", list(answers), ""
        elif endpoint.start_vllm:
            text = "not checked: --start-vllm starts it with the run"
            fix = "While it runs, check it with `heavydistill doctor --endpoint` at its address."
            yield f"{name}, served here", [Finding("endpoint", "ok", text, fix)], ""
        for url in endpoint.urls:
            yield f"{name}: {profile.model} at {url}", *_visit(patient, url, config, console)


def _tokenizer(model: Profile, endpoint: Endpoint) -> Finding:
    """Return the finding on token counting. Raises TeacherError if no counter can be loaded."""
    from heavydistill.doctor import Finding

    name = model.tokenizer
    if endpoint.start_vllm and name == SERVER:
        return Finding("tokenizer", "ok", "none; the server that the run starts counts tokens")
    is_needed = model.kind == "local" or endpoint.tokenizer not in (None, SERVER)
    reader = ReaderTokenizer(name) if is_needed else _reader(model, endpoint)
    if reader.name == name:
        return Finding("tokenizer", "ok", name)
    lost = "" if name == SERVER else f"{name} cannot be loaded; "
    if reader.name != ESTIMATED:
        text = f"{lost}the server counts tokens: it answers /tokenize"
        return Finding("tokenizer", "warning" if lost else "ok", text)
    text = f"{lost}the server does not answer /tokenize, so tokens are estimated as one for each "
    text += "UTF-8 byte, and caches may be shorter than necessary"
    return Finding("tokenizer", "warning", text, "Give --tokenizer FOLDER (or a Hub id).")


def _reader(model: Profile, endpoint: Endpoint) -> Reader:
    """Return a served model's best token counter: its tokenizer, its server, or an estimate."""
    if model.tokenizer != SERVER:
        with contextlib.suppress(TeacherError):
            return ReaderTokenizer(model.tokenizer)
    server = ServerTokenizer(model.model, endpoint)
    return server if server.is_answered() else ByteEstimate()


def _patient(
    name: str, profile: Profile, config: RunConfig, context: capabilities.Context
) -> ExaminedModel:
    from heavydistill.doctor.endpoint import ExaminedModel
    from heavydistill.heavy import prompts

    thinker, deliberator = config.roles
    samplings = []
    if name == thinker:
        samplings.append(config.think.sampling.over(profile.thinker))
    if name == deliberator:
        samplings.append(config.deliberate.sampling.over(profile.deliberator))
    prompt = prompts.load(
        "thinker", config.domain or profile.domain, config.language, config.prompts
    )
    file = registry.profile_file(name)
    return ExaminedModel(
        profile=profile,
        samplings=samplings,
        context=context,
        prompt=prompts.thinker_prompt(_PROBLEM, prompt),
        cache_tokens=(name == deliberator and config.rounds and config.cache.budget_tokens) or 0,
        parser=file.thinking.parser if file else None,
        hosted=provider_at(config.endpoint.base_url or "") is not None,
    )


def _visit(
    patient: ExaminedModel, url: str, config: RunConfig, console: Console
) -> tuple[list[Finding], str]:
    """Check the model at one address, write its capability file, and return (findings, note)."""
    from heavydistill.doctor.endpoint import Examination

    profile, endpoint = patient.profile, config.endpoint.model_copy(update={"base_url": url})
    with console.status(f"Asking {profile.model} at {url}"):
        seen = Examination(patient, endpoint, _reader(profile, endpoint))
    path = capabilities.save(url, profile.model, seen.capabilities)
    cost = f"{seen.requests} requests, {seen.prompt_tokens:,} + {seen.completion_tokens:,} tokens"
    if profile.price:
        cost += f", {profile.price.usd(seen.prompt_tokens, seen.completion_tokens):.4f} USD"
    counted = "" if seen.is_counted else " as far as they were counted"
    return seen.findings, f"{cost}{counted}. Runs obey {path}"
