"""What ``endpoint.start_vllm`` serves: a profile's model, a checkpoint, or adapters on one base.

One server is started, so thinker and deliberator must be one model, or adapters on one base model,
or a base model and its adapter. Each keeps its own name as the served name. Not covered: a server
per role, and adapters that vLLM does not support (it refuses DoRA and fully trained modules).
"""

from __future__ import annotations

from pathlib import Path

from heavydistill.config.run import RunConfig
from heavydistill.config.shipped import shipped
from heavydistill.errors import ConfigError
from heavydistill.models.hub_files import file_in
from heavydistill.models.local.adapter import Adapter, adapter_of
from heavydistill.models.profiles import ProfileFile
from heavydistill.models.registry import is_checkpoint, nearest, profile_file, profile_of_weights

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # vLLM compiles its kernels for these


def to_serve(config: RunConfig) -> ProfileFile:
    """The profile of the model to serve with ``endpoint.start_vllm``, with flags for adapters.

    Raises:
        ConfigError: Thinker and deliberator do not share a base model, or their chat templates
            differ; or a model has neither a profile nor weights.
        TeacherError: The configuration of an adapter or its base cannot be read.
    """
    roles = dict.fromkeys(config.roles)
    adapters = {
        name: adapter for name in roles if is_checkpoint(name) and (adapter := adapter_of(name))
    }
    bases = dict.fromkeys(adapters[name].base if name in adapters else name for name in roles)
    if len({_weights(name) for name in bases}) > 1:
        thinker, deliberator = config.roles
        raise ConfigError(
            f"--start-vllm serves one model, but {thinker} thinks and {deliberator} deliberates",
            "Serve both models yourself (`heavydistill teachers NAME` prints the command for "
            "each), put one router in front of both servers, and name the router's address with "
            "--endpoint. Two adapters on one base model need one server alone.",
        )
    file = next(filter(None, map(profile_file, bases)), None) or _of_weights(next(iter(bases)))
    if not (adapters and file.vllm):
        return file
    flags = {**file.vllm.flags, **_lora(list(adapters.values()))}
    vllm = file.vllm.model_copy(update={"flags": flags})
    return file.model_copy(update={"vllm": vllm})


def _weights(name: str) -> str:
    file = profile_file(name)
    place = (file.folder or file.hub or file.name) if file else name
    return str(Path(place).resolve()) if Path(place).is_dir() else place


def _of_weights(name: str) -> ProfileFile:
    if not is_checkpoint(name):
        raise ConfigError(
            f"--start-vllm takes its flags from a profile, and {name!r} has none",
            f"{nearest(name)}Give one of {', '.join(shipped('configs/teachers'))}, a YAML file "
            "with one, a checkpoint folder, a Hub id, or start a server yourself and name it with "
            "--endpoint.",
        )
    return profile_of_weights(name)


def _lora(adapters: list[Adapter]) -> dict[str, str | int | list[str]]:
    """The flags of ``vllm serve`` for these adapters."""
    rank = max(adapter.rank for adapter in adapters)
    flags: dict[str, str | int | list[str]] = {
        "enable-lora": "",
        "max-loras": len(adapters),
        "max-lora-rank": next((known for known in _RANKS if known >= rank), rank),
        "lora-modules": [f"{adapter.name}={adapter.name}" for adapter in adapters],
    }
    # vLLM renders the prompts of adapters with the template of the base.
    templates = [_template(adapter) for adapter in adapters]
    if len({file and file.read_text(encoding="utf-8") for file in templates}) > 1:
        first, second = (adapter.name for adapter in adapters)
        raise ConfigError(
            f"The chat templates of {first} and {second} differ, and a server has one for all of "
            "its models",
            "Train both on sets that were built for one student, or serve each of them by its own "
            "server.",
        )
    if templates[0]:
        flags["chat-template"] = str(templates[0])
    return flags


def _template(adapter: Adapter) -> Path | None:
    try:
        return file_in(adapter.name, "chat_template.jinja")
    except (OSError, ValueError):  # trained with the template of the base
        return None
