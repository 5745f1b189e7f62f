"""The user's prompts: files that are read once, checked, and kept as text in the configuration.

A name can stand in place of a path: that of an installed plug-in, or one of two prompts of a
deliberator. ``tagged`` is for models that do not think by themselves: it asks for the comparison
between think tags. ``none`` has no instructions, only problem and attempts below header lines.

A prompt is a Markdown file in which fields such as ``{{problem}}`` stand for texts. ``FIELDS`` has
those that a role's prompt holds once each, or it holds their short form: a thinker's prompt without
``{{problem}}`` follows the problem, ``{{cache}}`` stands for problem and attempts as blocks, and a
judge's ``{{answer}}`` alone for its three texts as blocks. ``{{fence}}``, a run of ``=`` that is
longer than any in the texts, and ``{{language}}`` may stand anywhere.

The front matter of a file may name a file of examples beside it, whose blocks take the place of
``{{examples}}``. The text that is kept has them and no short form; its hash is the version of the
prompt (``heavy.prompts``).
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationInfo, field_validator

from heavydistill import plugins
from heavydistill.config.files import text_in
from heavydistill.config.yaml import Section, parse, parse_yaml
from heavydistill.errors import ConfigError, did_you_mean
from heavydistill.heavy.pruning import control_token_in

Wording = Literal["full", "short", "none"]
"""Levels of a deliberator's instructions, see ``heavy.prompts.at_level``."""
TRAINED_ROLES = ("thinker", "deliberator")
FIELDS = {
    "thinker": ("problem",),
    "deliberator": ("problem", "attempts"),
    "chooser": ("problem", "attempts"),
    "judge": ("problem", "reference", "answer"),
}
FIELD = re.compile(r"\{\{ *(\w+) *\}\}")
_CACHE = "cache", "{{fence}} Problem\n{{problem}}\n{{attempts}}"
_JUDGED = (
    "{{fence}} Problem\n{{problem}}\n{{fence}} Reference answer\n{{reference}}\n"
    "{{fence}} Answer\n{{answer}}\n{{fence}} End of answer"
)
_SHORT = {"deliberator": _CACHE, "chooser": _CACHE, "judge": ("answer", _JUDGED)}
_HEAD = re.compile(r"---\n *examples: *[\"']?(.+?)[\"']? *\n---\n")
_NAMED = resources.files("heavydistill.heavy") / "prompts" / "named"
plugins.ship("prompt", ("tagged", "none"))
_THINK_TAG = re.compile("</?think>")  # a prompt may ask for them, because they end no turn
_DOMAIN = re.compile(r"[\w-]{0,64}")
_MOST_BYTES = 2**20  # of a prompt, and of its examples


def whole(role: str, text: str) -> str:
    """Write out the short form of a role's prompt."""
    names = set(FIELD.findall(text))
    if role == "thinker":
        return text if "problem" in names else f"{{{{problem}}}}\n\n{text}"
    if role not in _SHORT:
        return text
    short, long = _SHORT[role]
    if not names.isdisjoint({*FIELDS[role]} - {short}):
        return text
    return FIELD.sub(lambda field: long if field[1] == short else field[0], text)


class OwnPrompts(Section):
    """The user's prompts, each a file, or for two roles a file for each domain: ``{sql: sql.md}``.

    Problems of other domains have our prompts. A text with a field may stand in place of a file, as
    in a saved configuration.
    """

    thinker: str | dict[str, str] | None = None
    """File with the thinker's prompt, or one for each domain (default: ours)."""
    deliberator: str | dict[str, str] | None = None
    """File with the deliberator's prompt, or one for each domain (default: ours)."""
    chooser: str | None = None
    """File with the prompt of the task ``choose`` (default: ours)."""
    judge: str | None = None
    """File with the judge's prompt (default: ours)."""

    @field_validator("*", mode="before")
    @classmethod
    def _of_files(cls, value: object, info: ValidationInfo) -> object:
        if value is None:
            return None
        role, texts = str(info.field_name), {}
        for domain, file in value.items() if isinstance(value, dict) else [("", value)]:
            if not (isinstance(file, str) and _DOMAIN.fullmatch(str(domain))):
                raise ConfigError(
                    f"prompts.{role} is neither a file nor a file for each domain",
                    f"Write {role}: FILE or {role}: {{DOMAIN: FILE}}; a domain has letters, "
                    "digits, - and _.",
                )
            texts[str(domain)] = _checked(role, f"prompts.{role}.{domain}".rstrip("."), file)
        return texts if isinstance(value, dict) else texts[""]

    @classmethod
    def saved(cls, tree: Any) -> OwnPrompts:
        """Read prompts that somebody else saved as texts; any file that they name is refused."""
        for value in tree.values() if isinstance(tree, dict) else [tree]:
            texts = value.values() if isinstance(value, dict) else [value]
            if not all(text is None or FIELD.search(str(text)) for text in texts):
                raise ConfigError("The sets record a prompt that is no text", "Build them again.")
        return parse(cls, tree, "The prompts that the sets record: ")

    def text(self, role: str, domain: str) -> str | None:
        """Return the user's prompt of a role for problems of a domain; None for ours."""
        value = getattr(self, role)
        return value.get(domain) if isinstance(value, dict) else value

    def texts(self, role: str) -> list[str]:
        """Return the user's prompts of a role, for all domains."""
        value = getattr(self, role) or {}
        return [*value.values()] if isinstance(value, dict) else [value]

    def over(self, others: OwnPrompts) -> OwnPrompts:
        """Return ``others`` with these prompts in their places."""
        return others.model_copy(update={role: prompt for role, prompt in self if prompt})


NO_PROMPTS = OwnPrompts()


def _checked(role: str, where: str, given: str) -> str:
    """Return the whole text of a prompt, given as a file or as its text.

    Raises ConfigError if the file cannot be read, or the text cannot be a prompt of this role.
    """
    text, needed = given, FIELDS[role]
    if not FIELD.search(given):
        where += f": {given}"
        path = Path(given).expanduser()
        if not path.exists() and given in plugins.shipped["prompt"]:
            if role != "deliberator":
                raise ConfigError(
                    f"{where} is a prompt of the deliberator",
                    f"Give a file with instructions for the {role}, or leave it out to use ours.",
                )
            path = Path(str(_NAMED / f"{given}.md"))
        elif not path.exists() and (own := plugins.find("prompt", given)):
            path = Path(own.value)
        text = _with_examples(path, where)
    text = whole(role, text.strip())
    names, known = FIELD.findall(text), (*needed, "fence", "language")
    unknown = [name for name in names if name not in known]
    if wrong := unknown or [name for name in needed if names.count(name) != 1]:
        what = "is no field" if unknown else f"occurs {names.count(wrong[0])} times in the text"
        short = f", or {{{{{_SHORT[role][0]}}}}} alone for all of them" if role in _SHORT else ""
        listed = ", ".join(f"{{{{{name}}}}}" for name in needed)
        raise ConfigError(
            f"{where}: {{{{{wrong[0]}}}}} {what}",
            f"{did_you_mean(wrong[0], known) if unknown else ''}Write {listed} once each{short}; "
            "{{fence}} and {{language}} anywhere. Braces that are no field need a space between.",
        )
    if token := control_token_in(_THINK_TAG.sub("", text)):
        raise ConfigError(
            f"{where}: {token} is a control token, which can end the user's turn",
            "Leave it out, or put a space after its first character.",
        )
    return text


def _with_examples(path: Path, where: str) -> str:
    """Return the text of a file, with the examples that its front matter names."""
    text = _text_of(path, where)
    head, has_place = _HEAD.match(text), "examples" in FIELD.findall(text)
    if not (text.strip() and bool(head) == has_place == text.startswith("---\n")):
        raise ConfigError(
            f"{where} is empty, or has only one of front matter and {{{{examples}}}}",
            "Write {{examples}} where a file of examples belongs, and name it in the first lines: "
            "---, examples: FILE, ---. Or leave both out.",
        )
    if not head:
        return text
    shown, text = _blocks(path.parent / head[1], f"{where}: {head[1]}"), text[head.end() :]
    return FIELD.sub(lambda field: shown if field[1] == "examples" else field[0], text)


def _blocks(file: Path, where: str) -> str:
    """Return the examples in a YAML file as blocks with header lines."""
    try:
        texts = [
            (f"{{{{fence}}}} Example {number} {name}\n", text)
            for number, example in enumerate(parse_yaml(_text_of(file, where)), 1)
            for name, text in example.items()
        ]
        if not 0 < sum(len(text) for _, text in texts) <= _MOST_BYTES:  # aliases repeat texts
            raise ValueError
        return "\n".join(
            [*(head + text.strip() for head, text in texts), "{{fence}} End of examples"]
        )
    except (yaml.YAMLError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{where} is no YAML list of mappings from names to texts",
            "Write each example as - {problem: '2+3?', answer: '5'}, with numbers in quotes.",
        ) from error


def _text_of(path: Path, where: str) -> str:
    try:
        return text_in(path, _MOST_BYTES).removeprefix("\ufeff").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "not UTF-8"
        fix = f"Correct the path, or save it as UTF-8.{plugins.absent()}"
        raise ConfigError(f"{where}: {what}", fix) from error
