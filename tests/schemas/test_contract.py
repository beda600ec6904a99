"""The checked-in contracts are those of the models, and say what the decoders do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from schemas.contract import asyncapi, generated, json_schemas
from schemas.topics import TOPICS

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "schemas" / "generated"
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def references(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        if isinstance(document.get("$ref"), str):
            yield document["$ref"]
        for value in document.values():
            yield from references(value)
    elif isinstance(document, list):
        for value in document:
            yield from references(value)


def at(document: Any, pointer: str) -> object:  # noqa: ANN401 - JSON has no common type
    for part in pointer.removeprefix("#/").split("/"):
        document = document[part]
    return document


def test_checked_in_files_are_those_of_the_models() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.iterdir()}
    assert sorted(found) == sorted(generated()), "run `gpuvigil schema` and commit what it wrote"
    differing = [name for name, text in generated().items() if found[name] != text]
    assert differing == [], "run `gpuvigil schema` and commit what it wrote"


@pytest.mark.parametrize("name", json_schemas())
def test_schemas_are_schemas_with_descriptions(name: str) -> None:
    schema = json.loads(json_schemas()[name])
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["description"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_bytes_keep_to_the_schema(path: Path) -> None:
    validator = Draft202012Validator(json.loads(json_schemas()[path.name]))
    content = json.loads(path.read_bytes())
    assert list(validator.iter_errors(content)) == []
    content["version"] = 2
    assert list(validator.iter_errors(content)) != []


def test_asyncapi_has_every_topic_as_it_is_made() -> None:
    document = json.loads(asyncapi())
    assert document["asyncapi"] == "3.0.0"
    assert {c["address"] for c in document["channels"].values()} == {
        t.name if not t.name.endswith(".") else f"{t.name}{{stage}}" for t in TOPICS
    }
    assert [o["action"] for o in document["operations"].values()] == ["send", "receive"] * 11
    alerts = document["channels"]["gpu.alerts"]["bindings"]["kafka"]
    assert alerts["topicConfiguration"] == {
        "cleanup.policy": ["delete"],
        "retention.ms": 30 * 86_400_000,
    }


def test_every_reference_in_asyncapi_leads_somewhere() -> None:
    document = json.loads(asyncapi())
    found = set(references(document))
    assert found
    for reference in found:
        if reference.startswith("#/"):
            assert at(document, reference), reference
        else:
            assert reference.removeprefix("./") in json_schemas(), reference
