"""Bytes that were written once are read for ever, and mean what they meant."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from schemas.codec import Decoder, encode
from schemas.contract import file_name
from schemas.hot import HOT
from schemas.topics import TOPICS, Topic, messages

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.json"))


def topic_of(path: Path) -> Topic:
    kind = path.name.split(".")[0]
    (topic,) = (t for t in TOPICS if t.model and t.model.model_fields["type"].default == kind)
    return topic


def within(old: object, new: object) -> object:
    """`new` without the members that `old` does not have: fields that came later."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: within(old[name], value) for name, value in new.items() if name in old}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [within(a, b) for a, b in zip(old, new, strict=True)]
    return new


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_golden_bytes_are_read_and_written_again(path: Path) -> None:
    raw = path.read_bytes().rstrip(b"\n")
    topic = topic_of(path)
    assert topic.model is not None
    decoder: Decoder[Any] = Decoder(topic.model, topic.name)
    message = decoder.decode(raw, partition=0, offset=0)
    again = encode(message)
    old = json.loads(raw)
    assert within(old, json.loads(again)) == old
    assert decoder.decode(again, partition=0, offset=0) == message


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_struct_and_model_write_golden_bytes_alike(path: Path) -> None:
    model = topic_of(path).model
    assert model is not None
    if model in HOT:
        raw = path.read_bytes()
        hot: Decoder[Any] = Decoder(model, "topic")
        struct = hot.decode(raw, partition=0, offset=0)
        assert json.loads(encode(struct)) == json.loads(encode(model.model_validate_json(raw)))


def test_every_message_has_golden_bytes_of_its_version() -> None:
    assert {file_name(model) for model in messages()} <= {path.name for path in FILES}


@pytest.mark.parametrize("model", list(messages()), ids=lambda model: model.__name__)
def test_golden_bytes_fill_every_field(model: type[BaseModel]) -> None:
    """A field that only ever had its default would not be held by this test."""
    content = json.loads((GOLDEN / file_name(model)).read_bytes())
    assert set(content) >= {n for n, f in model.model_fields.items() if f.is_required()}
    assert [name for name, value in content.items() if value in ([], {}, None)] == []
