"""Verbs that list what is bundled: ``teachers`` with a profile, and public ``benchmarks``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from heavydistill.config.models import Sampling
    from heavydistill.models.profiles import Offer, ProfileFile
    from heavydistill.problems.benchmarks import Benchmark

_WIDE = 160  # columns where there is no terminal: no line is folded there
_NARROW = 120  # a terminal of fewer columns has no room for Hub ids beside the rest

_Name = Annotated[str | None, typer.Argument(help="Name of one, to print everything known of it.")]


def teachers(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of one or your own YAML file, to print everything known of it."),
    ] = None,
) -> None:
    """List the teachers with a profile: context, licence, terms and GPUs."""
    from heavydistill.models.registry import profile_of, shipped

    console = _console()
    if name is not None:
        _print_facts(_facts_of_teacher(profile_of(name)), console)
        return
    columns = ("Name", "Context", "Licence", "Distillation", "80 GB GPUs", "Hub id")
    rows = (
        (
            profile.name,
            f"{profile.context:,}",
            profile.licence or "unknown",
            profile.terms.distillation,
            _gpus(profile),
            profile.hub or "-",
        )
        for profile in map(profile_of, shipped())
    )
    shown = len(columns) - (console.width < _NARROW)
    _print_list(columns[:shown], (row[:shown] for row in rows), 2, console)


def benchmarks(name: _Name = None) -> None:
    """List the public benchmarks that `--benchmark NAME` knows: size, verifier, licence, Hub id."""
    from heavydistill.problems.benchmarks import benchmark, shipped

    console = _console()
    if name is not None:
        _print_facts(_facts_of_benchmark(benchmark(name)), console)
        return
    columns = ("Name", "Problems", "K x D", "Verifier", "Licence", "Token", "Hub id")
    rows = (
        (
            known.name,
            _size(known),
            _k_and_d(known),
            _verifier(known),
            known.licence or "unknown",
            "needed" if known.gated else "no",
            _hub(known),
        )
        for known in map(benchmark, shipped())
    )
    _print_list(columns, rows, 3, console)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _print_list(
    columns: Iterable[str], rows: Iterable[Iterable[str]], numbers: int, console: Console
) -> None:
    """Print a table whose columns from ``numbers`` on are texts."""
    from heavydistill.report.terminal import print_table, table

    shown = table(console, *columns)
    for column in shown.columns[numbers:]:
        column.justify = "left"
    for row in rows:
        shown.add_row(*row)
    print_table(shown, console)


def _print_facts(facts: Iterable[tuple[str, str]], console: Console) -> None:
    from heavydistill.report.terminal import plain

    known = list(facts)
    width = max(len(label) for label, _ in known)
    for label, value in known:
        console.print(plain(f"{label:<{width}}  {value}"), soft_wrap=True)


def _gpus(profile: ProfileFile) -> str:
    if profile.folder:
        return "none needed"
    if not profile.hub:
        return "hosted only"
    if not profile.vllm:
        return "unknown"
    fitting = [count for count, setup in profile.vllm.gpus.items() if setup]
    return str(min(fitting)) if fitting else f"more than {max(profile.vllm.gpus)}"


def _facts_of_teacher(profile: ProfileFile) -> Iterator[tuple[str, str]]:
    """(what, all that is known of it)."""
    terms, thinking = profile.terms, profile.thinking
    yield "name", profile.name
    yield "weights", profile.folder or profile.hub or "not public"
    yield "licence", profile.licence or "unknown"
    yield "distillation", _joined(terms.distillation, terms.because, terms.source)
    yield (
        "tokenizer",
        profile.tokenizer or "none: the server counts tokens, or they are estimated",
    )
    limits = [f"{profile.context:,} tokens"]
    limits += [f"a response at most {profile.output:,}"] if profile.output else []
    limits += [f"a trajectory at most {profile.thinker_output:,}"] if profile.thinker_output else []
    yield "context", _joined(", ".join(limits), profile.sources.limits)
    yield "prompts", profile.domain
    for whose, sampling in (("paper", profile.sampling.paper), ("maker", profile.sampling.maker)):
        if sampling:
            yield f"sampling {whose}", _sampling(sampling)
    if profile.sources.sampling:
        yield "", profile.sources.sampling
    yield "thinking", _joined(*_thinking(profile), profile.sources.thinking)
    if thinking.extra_body:
        yield "switched on by", _json(thinking.extra_body)
    for provider, offer in profile.providers.items():
        yield provider, _offer(provider, offer)
    yield from _serving(profile)


def _thinking(profile: ProfileFile) -> Iterator[str]:
    tags, parser = profile.thinking.tags, profile.thinking.parser
    if tags:
        yield f"between {tags[0]} and {tags[1]} in the text"
    if parser:
        yield f"in a field of its own with vLLM's parser {parser}"
    if not tags and not parser:
        yield "not marked, or not shown"


def _serving(profile: ProfileFile) -> Iterator[tuple[str, str]]:
    from heavydistill.models.profiles import serve_command

    if not profile.vllm:
        return
    for count in profile.vllm.gpus:
        command = serve_command(profile, count)
        label = f"{count} GPU{'s' if count > 1 else ''}"
        yield label, " ".join(command) if command else f"does not fit: {profile.vllm.why_null}"
    if profile.sources.vllm:
        yield "", profile.sources.vllm


def _offer(provider: str, offer: Offer) -> str:
    from heavydistill.models.profiles import PROVIDERS

    parts = [offer.model]
    if provider in PROVIDERS:
        known = PROVIDERS[provider]
        parts += [f"at {known.base_url}, its key in {known.key_env}"]
    if offer.extra_body:
        parts += [f"switched on by {_json(offer.extra_body)}"]
    if price := offer.price:
        parts += [
            f"{price.usd_per_mtok_in:g} USD a million tokens in, {price.usd_per_mtok_out:g} out "
            f"({price.as_of})"
        ]
    return _joined(*parts, offer.source)


def _sampling(sampling: Sampling) -> str:
    return ", ".join(
        f"{key} {value:,}" if isinstance(value, int) else f"{key} {value:g}"
        for key, value in sampling.model_dump().items()
        if (key, value) not in (("min_p", 0.0), ("repetition_penalty", 1.0))
    )


def _facts_of_benchmark(known: Benchmark) -> Iterator[tuple[str, str]]:
    """(what, all that is known of it), where something is."""
    problems = known.problems
    subset = f", subset {problems.subset}" if problems.subset else ""
    token = "; accept its terms on the Hub and set HF_TOKEN" if known.gated else ""
    args = _json(problems.verifier_args) if problems.verifier_args else ""
    facts = {
        "name": known.name,
        "title": known.title,
        "problems": _size(known),
        "Hub": f"{_hub(known)}{subset}, split {problems.split}{token}",
        "columns": ", ".join(f"{field} = {name}" for field, name in problems.columns.items()),
        "shape": problems.shape or "",
        "within": _json(problems.within) if problems.within else "",
        "verifier": f"{_verifier(known)} {args}".strip(),
        "unfit rows": "left out" if problems.unfit == "leave_out" else "refused",
        "settings": _json(known.settings),
        "licence": known.licence or "unknown",
        "citation": known.citation,
        "source": known.source,
        "notes": known.notes,
    }
    yield from ((label, value) for label, value in facts.items() if value)


def _size(known: Benchmark) -> str:
    return f"{known.size:,}" if known.size else "unknown"


def _hub(known: Benchmark) -> str:
    return known.problems.source.removeprefix("hub:")


def _verifier(known: Benchmark) -> str:
    from heavydistill.problems.columns import DEFAULT_VERIFIER, OPTIONS_VERIFIER

    asks = "options" in known.problems.columns or known.problems.shape == "gpqa"
    return OPTIONS_VERIFIER if asks else known.problems.verifier or DEFAULT_VERIFIER


def _k_and_d(known: Benchmark) -> str:
    from heavydistill.config.run import load_config

    run = load_config(preset=known.preset)
    return f"{run.think.k} x {run.deliberate.d}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
