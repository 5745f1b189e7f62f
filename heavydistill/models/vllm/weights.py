"""What ``endpoint.start_vllm`` serves: a profile's model, a checkpoint, or adapters on one base.

One server is started, so thinker and deliberator must be one model, or adapters on one base model,
or a base model and its adapter. Each keeps its own name as the served name. What vLLM would serve
as another model than this process does is refused: other templates or tokenizers than the served
one, ranks that differ between layers, and thinking between control tokens, which vLLM leaves out of
its answers. Not covered: a server per role.
"""

from __future__ import annotations

import json
from pathlib import Path

from heavydistill.config.run import RunConfig
from heavydistill.config.shipped import shipped
from heavydistill.errors import ConfigError
from heavydistill.models.hub_files import file_in
from heavydistill.models.local.adapter import Adapter, adapter_of
from heavydistill.models.profiles import Flags, ProfileFile
from heavydistill.models.registry import is_checkpoint, nearest, profile_file, profile_of_weights
from heavydistill.models.thinking import COMMON_TAGS

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # vLLM compiles its kernels for these


def to_serve(config: RunConfig) -> ProfileFile:
    """The profile of the model to serve with ``endpoint.start_vllm``, with flags for adapters.

    Raises:
        ConfigError: Thinker and deliberator do not share a base model or a chat template; a model
            has neither a profile nor weights; or vLLM would serve it as another model.
        TeacherError: The configuration of an adapter or its base cannot be read.
    """
    roles = [name for name in config.model_names if name not in config.thinkers_apart]
    adapters = {
        name: adapter for name in roles if is_checkpoint(name) and (adapter := adapter_of(name))
    }
    bases = dict.fromkeys(adapters[name].base if name in adapters else name for name in roles)
    if len({_weights(name, name in roles) for name in bases}) > 1:
        thinker, deliberator = config.roles
        raise ConfigError(
            f"--start-vllm serves one model, but {thinker} thinks and {deliberator} deliberates",
            "Serve both models yourself (`heavydistill teachers NAME` prints the command for "
            "each), put one router in front of both servers, and name the router's address with "
            "--endpoint. Two adapters on one base model need one server alone.",
        )
    # A base that has a role is served under the name that the run asks for.
    base = next((name for name in bases if name in roles), next(iter(bases)))
    file = (profile_file(base) if base in roles else None) or _of_weights(base, adapters)
    if not (adapters and file.vllm):
        return file
    of_adapters = _lora(list(adapters.values()), base, base in roles)
    if (tokenizer := of_adapters.get("tokenizer")) and not file.thinking.parser:
        _refuse_hidden_thinking(str(tokenizer))
    flags = {**file.vllm.flags, **of_adapters}
    vllm = file.vllm.model_copy(update={"flags": flags})
    return file.model_copy(update={"vllm": vllm})


def _weights(name: str, has_role: bool) -> str:
    """The folder or Hub id of a model; only a name with a role may be that of a profile."""
    file = profile_file(name) if has_role else None
    place = (file.folder or file.hub or file.name) if file else name
    return str(Path(place).resolve()) if Path(place).is_dir() else place


def _of_weights(name: str, adapters: dict[str, Adapter]) -> ProfileFile:
    if not (is_checkpoint(name) or adapters):
        raise ConfigError(
            f"--start-vllm takes its flags from a profile, and {name!r} has none",
            f"{nearest(name)}Give one of {', '.join(shipped('configs/teachers'))}, a YAML file "
            "with one, a checkpoint folder, a Hub id, or start a server yourself and name it with "
            "--endpoint.",
        )
    _refuse_hidden_thinking(name)
    return profile_of_weights(name)


def _refuse_hidden_thinking(name: str) -> None:
    """Raise ConfigError if the tokenizer of a folder or Hub id has tags that vLLM leaves out."""
    try:
        tree = json.loads(file_in(name, "tokenizer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # what is missing is said with the profile
        tree = {}
    special = [token["content"] for token in tree.get("added_tokens", ()) if token["special"]]
    if tags := [tag for tag in COMMON_TAGS if tag in special]:
        raise ConfigError(
            f"{name} marks its thinking by control tokens ({' '.join(tags)}), which vLLM leaves "
            "out of its answers",
            "Write a profile with thinking.parser, which moves the thinking to a field, and give "
            "its file as the model.",
        )


def _lora(adapters: list[Adapter], base: str, has_role: bool) -> Flags:
    """The flags of ``vllm serve`` for these adapters; ``has_role``: the base is asked as well."""
    for adapter in adapters:
        if adapter.has_patterns or adapter.rank > max(_RANKS):
            lacks = "ranks or scales that differ between its layers"
            if not adapter.has_patterns:
                lacks = f"the rank {adapter.rank}, above {max(_RANKS)}"
            raise ConfigError(
                f"The adapter {adapter.name} has {lacks}, which vLLM does not serve",
                f"Merge it: heavydistill merge --adapter {adapter.name} --out "
                f"{adapter.name}-merged",
            )
    revisions = list(dict.fromkeys(adapter.revision for adapter in adapters))
    if len(revisions) > 1:
        first, second = (adapter.name for adapter in adapters)
        raise ConfigError(
            f"{first} and {second} were trained on different revisions of their base",
            "Merge each with `heavydistill merge`, and serve them by a server each.",
        )
    rank = max(adapter.rank for adapter in adapters)
    flags: Flags = {
        "enable-lora": "",
        "max-loras": len(adapters),
        "max-lora-rank": next(known for known in _RANKS if known >= rank),
        # As JSON, because a path may hold the sign that separates name and path.
        "lora-modules": [json.dumps({"name": a.name, "path": a.name}) for a in adapters],
    }
    if template := _template(adapters, base, has_role):
        flags["chat-template"] = template
    if revisions[0]:
        flags["revision"] = revisions[0]
    if tokenizer := _tokenizer(adapters, base, has_role):
        # Otherwise vLLM looks for the revision of the base.
        flags |= {"tokenizer": tokenizer, "tokenizer-revision": "main"}
    return flags


def _template(adapters: list[Adapter], base: str, has_role: bool) -> str:
    """The chat template that the server needs beside its own, which is the base's; or empty.
    Raises ``ConfigError`` if two of the models have different ones."""
    names = [adapter.name for adapter in adapters] + ([base] if has_role else [])
    own = {name: _own_template(name) for name in (base, *names)}
    texts = {name: own[name][0] or own[base][0] for name in names}
    _refuse_unlike("chat templates", texts)
    first = names[0]
    text, file = own[first]
    return "" if texts[first] == own[base][0] else file or text


def _tokenizer(adapters: list[Adapter], base: str, has_role: bool) -> str:
    """The adapter whose tokenizer the server needs in place of its base's; or empty. Raises
    ``ConfigError`` if two of the models have different ones."""
    if not any(adapter.own_tokenizer for adapter in adapters):
        return ""
    of_base = _rules(base, adapters[0].revision)
    of_models = {a.name: _rules(a.name) if a.own_tokenizer else of_base for a in adapters}
    _refuse_unlike("tokenizers", of_models | ({base: of_base} if has_role else {}))
    first = adapters[0].name
    return "" if of_models[first] == of_base else first


def _rules(name: str, revision: str | None = None) -> str:
    """All that decides how a tokenizer divides a text, however its file is written."""
    from tokenizers import Tokenizer

    try:
        text = file_in(name, "tokenizer.json", revision).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception:  # the library has no class of its own; what is damaged is said when it counts
        return text
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return str(tokenizer.to_str())


def _refuse_unlike(what: str, of_models: dict[str, str]) -> None:
    """Raise ConfigError if models of one server differ in what it has for all of them."""
    first, *others = of_models
    if other := next((name for name in others if of_models[name] != of_models[first]), None):
        raise ConfigError(
            f"The {what} of {first} and {other} differ, and a server has one for all of its models",
            "Serve each of them by a server of its own, or train both on sets that were built for "
            "one student.",
        )


def _own_template(name: str) -> tuple[str, str]:
    """(chat template, its file) of a folder or Hub id; both empty if it has none of its own."""
    try:
        file = file_in(name, "chat_template.jinja")
        return file.read_text(encoding="utf-8"), str(file)
    except (OSError, ValueError):
        pass
    try:
        tree = json.loads(file_in(name, "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "", ""
    text = tree.get("chat_template")
    return (text, "") if isinstance(text, str) else ("", "")
