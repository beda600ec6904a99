"""Structs accept what the pydantic models accept, field by field, and no more."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from schemas.codec import DecodeError, Decoder, encode
from schemas.hot import HOT, struct_of
from tests.schemas.wire_texts import HOSTILE, deep, hostile, message

MODELS = sorted(HOT, key=lambda model: model.__name__)
DECODERS: dict[type[BaseModel], Decoder[Any]] = {m: Decoder(m, "topic") for m in MODELS}

by_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)


def refuse(constant: str) -> None:
    raise ValueError(constant)


def by_contract(model: type[BaseModel], raw: bytes) -> BaseModel | None:
    """JSON by RFC 8259, then pydantic; None where that refuses.  Uses nothing of the codec."""
    try:
        json.loads(raw.decode("utf-8"), parse_constant=refuse)
        return model.model_validate_json(raw)
    except (ValueError, RecursionError):
        return None


def by_hot_path(model: type[BaseModel], raw: bytes) -> msgspec.Struct | None:
    try:
        struct = DECODERS[model].decode(raw, partition=0, offset=0)
    except DecodeError:
        return None
    assert isinstance(struct, msgspec.Struct)
    return struct


def equal(one: object, other: object) -> bool:
    """Equal in value and in type, where a struct and its model count as one type."""
    if isinstance(one, msgspec.Struct) and isinstance(other, BaseModel):
        names = list(type(other).model_fields)
        return list(one.__struct_fields__) == names and all(
            equal(getattr(one, name), getattr(other, name)) for name in names
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def agree(model: type[BaseModel], raw: bytes) -> bool:
    expected, found = by_contract(model, raw), by_hot_path(model, raw)
    if expected is None or found is None:
        return expected is None and found is None
    return equal(found, expected)


@pytest.mark.slow
@by_model
@given(data=st.data())
@settings(max_examples=150)
def test_sound_messages_are_equal_and_stay_so_when_written_again(
    model: type[BaseModel], data: st.DataObject
) -> None:
    raw = data.draw(message(model)).text().encode()
    expected, found = by_contract(model, raw), by_hot_path(model, raw)
    assert expected is not None
    assert found is not None
    assert equal(found, expected)
    assert by_contract(model, encode(found)) == expected
    assert by_hot_path(model, encode(expected)) == found


@pytest.mark.slow
@by_model
@given(data=st.data())
@settings(max_examples=300)
def test_hostile_messages_are_judged_alike(model: type[BaseModel], data: st.DataObject) -> None:
    assert agree(model, data.draw(hostile(model)))


@by_model
@pytest.mark.parametrize("bad", HOSTILE, ids=range(len(HOSTILE)))
@given(data=st.data())
@settings(max_examples=1, derandomize=True)
def test_every_hostile_token_in_every_field_is_judged_alike(
    model: type[BaseModel], bad: str, data: st.DataObject
) -> None:
    root = data.draw(message(model))
    assert root.members is not None
    sound = dict(root.members)
    for name in [*(json.dumps(name) for name in model.model_fields), '"unknown"']:
        pairs = [f"{k}:{v.text()}" for k, v in sound.items() if k != name]
        assert agree(model, ("{" + ",".join([*pairs, f"{name}:{bad}"]) + "}").encode()), name


@by_model
def test_a_struct_has_the_fields_and_defaults_of_its_model(model: type[BaseModel]) -> None:
    for field in msgspec.structs.fields(struct_of(model)):
        info = model.model_fields[field.name]
        assert field.required == info.is_required()
    assert [f.name for f in msgspec.structs.fields(struct_of(model))] == list(model.model_fields)


@pytest.mark.parametrize("content", ["\xff", "\xc0\x80", "\xed\xa0\x80"])
@pytest.mark.parametrize("place", ['{"unknown":"@"}', '{"@":1}', '{"unknown":{"@":1}}', "@"])
@by_model
def test_bytes_that_are_no_utf_8_are_refused_wherever_they_are(
    model: type[BaseModel], place: str, content: str
) -> None:
    sound = encode_example(model)
    raw = sound[:-1] + b',"z":' + place.encode().replace(b"@", content.encode("latin-1")) + b"}"
    assert by_contract(model, raw) is None
    assert by_hot_path(model, raw) is None


@by_model
@pytest.mark.parametrize("levels", [150, 100_000])
@pytest.mark.parametrize("name", ["unknown", "cluster", "type"])
def test_nesting_is_judged_alike(model: type[BaseModel], name: str, levels: int) -> None:
    assert agree(model, encode_example(model)[:-1] + f',"{name}":{deep(levels)}}}'.encode())


@by_model
@pytest.mark.parametrize("skipped", [deep(250), "1" * 4301], ids=["levels", "digits"])
def test_the_one_freedom_of_the_hot_path(model: type[BaseModel], skipped: str) -> None:
    """Inside a field that it does not know: pydantic reads it, to throw it away; structs do not."""
    sound = encode_example(model)
    raw = sound[:-1] + f',"unknown":{skipped}}}'.encode()
    with pytest.raises(ValidationError):
        model.model_validate_json(raw)
    assert by_hot_path(model, raw) == by_hot_path(model, sound)


def encode_example(model: type[BaseModel]) -> bytes:
    fields: dict[str, object] = {
        name: 1 if "int" in str(info.annotation) or "float" in str(info.annotation) else "x"
        for name, info in model.model_fields.items()
        if info.is_required()
    }
    if "position" in fields:
        fields |= {"position": {"epoch": 1, "sequence": 2}, "action": "upsert"}
    raw = json.dumps(fields).encode()
    assert by_contract(model, raw) is not None
    return raw
