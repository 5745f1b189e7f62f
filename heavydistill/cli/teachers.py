"""``heavydistill teachers``: the models that a profile knows, or all that is known of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from heavydistill.config.models import Sampling
    from heavydistill.models.profiles import Offer, ProfileFile

_WIDE = 160  # columns where there is no terminal: no line is folded there
_NARROW = 120  # a terminal of fewer columns has no room for Hub ids beside the rest


def teachers(
    name: Annotated[
        str | None,
        typer.Argument(help="Print everything known of this one: its name, or your own YAML file."),
    ] = None,
) -> None:
    """List the teachers with a profile: context, licence, terms and GPUs."""
    from rich.console import Console

    from heavydistill.models.registry import profile_of, shipped

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    if name is None:
        _print_list([profile_of(each) for each in shipped()], console)
    else:
        _print_one(profile_of(name), console)


def _print_list(profiles: list[ProfileFile], console: Console) -> None:
    from heavydistill.report.terminal import print_table, table

    columns = ["Name", "Context", "Licence", "Distillation", "80 GB GPUs", "Hub id"]
    shown = len(columns) - (console.width < _NARROW)
    rows = table(console, *columns[:shown])
    for column in rows.columns[2:]:
        column.justify = "left"
    for profile in profiles:
        cells = [
            profile.name,
            f"{profile.context:,}",
            profile.licence or "unknown",
            profile.terms.distillation,
            _gpus(profile),
            profile.hub or "-",
        ]
        rows.add_row(*cells[:shown])
    print_table(rows, console)


def _gpus(profile: ProfileFile) -> str:
    if profile.folder:
        return "none needed"
    if not profile.hub:
        return "hosted only"
    if not profile.vllm:
        return "unknown"
    fitting = [count for count, setup in profile.vllm.gpus.items() if setup]
    return str(min(fitting)) if fitting else f"more than {max(profile.vllm.gpus)}"


def _print_one(profile: ProfileFile, console: Console) -> None:
    from heavydistill.report.terminal import plain

    lines = list(_lines(profile))
    width = max(len(label) for label, _ in lines)
    for label, value in lines:
        console.print(plain(f"{label:<{width}}  {value}"), soft_wrap=True)


def _lines(profile: ProfileFile) -> Iterator[tuple[str, str]]:
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


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
