"""The verifier ``json_schema``: whether a response holds JSON that fits a schema.

The column ``schema`` has the schema, as an object or as JSON text. The answer is the block fenced
as ``json``, a block without a language, or the whole response. Formats such as ``date`` are checked
as far as jsonschema can without further packages. References to what is not in the schema are
refused before the run, because nothing is downloaded.

    correct    fits
    incorrect  does_not_fit   ``evidence`` names the first fault and its place
    incorrect  not_json       it cannot be parsed, or holds NaN, or a key twice
    incorrect  no_json
    undecided  several_blocks with different values
    undecided  too_deep

Needs ``pip install jsonschema``.
"""

import importlib.util
import json

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Verifier


def schema_of(problem: Problem) -> object:
    schema = json.loads(problem.verifier_args).get("schema")
    return json.loads(schema) if isinstance(schema, str) else schema


def validator(schema: object):
    """A validator that loads no other document. Raises SchemaError if it is no schema."""
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    return kind(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)


def references(node: object) -> list[str]:
    if isinstance(node, list):
        return [found for item in node for found in references(item)]
    if not isinstance(node, dict):
        return []
    own = [node[key] for key in ("$ref", "$dynamicRef") if isinstance(node.get(key), str)]
    return own + references(list(node.values()))


def missing_reference(schema: dict[str, object]) -> str | None:
    """The first reference of a schema to something that is not in it."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().with_resource("", resource).resolver()
    for reference in references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return reference
    return None


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def parsed(text: str) -> object:
    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


class JsonSchema(Verifier):
    """The verifier ``json_schema``, described in this module's docstring."""

    name = "json_schema"
    version = "1"
    argument_columns = ("schema",)
    needs_reference = False
    domain = "general"

    def unavailable(self, config: Verifying) -> str | None:
        found = importlib.util.find_spec("jsonschema")
        return None if found else "jsonschema is not installed. pip install jsonschema"

    def check_reference(self, problem: Problem) -> str | None:
        from jsonschema.exceptions import SchemaError

        try:
            schema = schema_of(problem)
            if not isinstance(schema, dict) or not schema:
                return "there is no schema; give an object with at least one rule in column schema"
            validator(schema)
            missing = missing_reference(schema)
        except SchemaError as error:
            place = "/".join(map(str, error.path)) or "its top"
            return f"schema is not a JSON schema, at {place}: {error.message[:200]}; correct it"
        except (ValueError, RecursionError) as error:
            return f"schema is not JSON: {error}; correct it"
        return missing and f"schema refers to {missing!r}, which it lacks; put that into $defs"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        parts = [part.partition("\n") for part in text.split("```")[1::2]]
        for language in ("json", ""):
            blocks = {body.strip() for tag, _, body in parts if tag.strip().lower() == language}
            if len(blocks) > 1:
                return Decision("undecided", "several_blocks")
            if blocks:
                return blocks.pop()
        whole = text.strip()
        return whole if whole[:1] in ("{", "[") else Decision("incorrect", "no_json")

    def decide(self, problem: Problem, candidate: str) -> Decision:
        try:
            value = parsed(candidate)
            errors = validator(schema_of(problem)).iter_errors(value)
            first = min(errors, key=lambda error: list(map(str, error.path)), default=None)
        except RecursionError:
            return Decision("undecided", "too_deep")
        except ValueError:
            return Decision("incorrect", "not_json")
        answer = json.dumps(value, sort_keys=True)
        if first is None:
            return Decision("correct", "fits", answer)
        fault = {"at": list(map(str, first.path)), "fault": first.message[:200]}
        return Decision("incorrect", "does_not_fit", answer, evidence=json.dumps(fault))
