"""Bytes to messages and back.  Whatever can't be used becomes one typed error, never a crash.

Hot messages become structs (schemas.hot), all others pydantic models.  The contract is: JSON by
RFC 8259, then pydantic.  What a struct's decoder refuses is put to that contract before it is
given up, so both paths accept the same.  One freedom is left to the hot path: inside a field that
it does not know it only skips, so there more than 200 levels or 4300 digits may pass.
"""

from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast, get_args

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from schemas.hot import HOT, model_of, struct_of
from schemas.topics import key_fields

MAX_MESSAGE_BYTES = 8 * 2**20
"""Larger values are refused before anything looks into them."""

MAX_REASON_CHARACTERS = 300

M = TypeVar("M")
_ENCODER = msgspec.json.Encoder()


class DecodeError(Exception):
    """A message that can't be used, with its place in the topic and one line that says why."""

    def __init__(
        self, topic: str, partition: int, offset: int, key: bytes | None, reason: str
    ) -> None:
        super().__init__(f"{topic}[{partition}]@{offset}: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.reason = reason


class _UnusableError(Exception):
    """A reason that does not know its place yet."""


class Decoder(Generic[M]):
    """Reads the values of one topic.

    For a hot model, given as the model or as its struct, it returns structs.  Raises TypeError for
    a model that is no message.
    """

    def __init__(self, model: type[M], topic: str) -> None:
        self.topic = topic
        self._model = _pydantic(model)
        self._fast: msgspec.json.Decoder[Any] | None = None
        if self._model in HOT:
            self._fast = msgspec.json.Decoder(struct_of(self._model))
        self._key_fields = key_fields(self._model)
        self._parts = attrgetter(*self._key_fields) if self._key_fields else None
        _head(self._model)

    def decode(
        self, value: bytes | None, *, partition: int, offset: int, key: bytes | None = None
    ) -> M:
        """The message in `value`, which fits its key where one is given.

        Raises DecodeError, and nothing else, for any value.
        """
        try:
            message = self._message(value)
            if key is not None and self._key_fields:
                _check_key(key, self._key(message))
        except _UnusableError as error:
            raise DecodeError(self.topic, partition, offset, key, _line(str(error))) from None
        return cast("M", message)

    def _message(self, value: bytes | None) -> object:
        if value is None:
            msg = "the value is empty (a tombstone), which this topic does not use"
            raise _UnusableError(msg)
        if len(value) > MAX_MESSAGE_BYTES:
            msg = f"the value has {len(value)} bytes, the most is {MAX_MESSAGE_BYTES}"
            raise _UnusableError(msg)
        if self._fast is None:
            return _by_contract(self._model, value)
        try:
            str(value, "utf-8")  # the struct's decoder does not look into what it skips
            return self._fast.decode(value)
        except (ValueError, RecursionError):
            agreed = _by_contract(self._model, value)
        return self._fast.decode(agreed.model_dump_json())

    def _key(self, message: object) -> bytes:
        parts = () if self._parts is None else self._parts(message)
        if len(self._key_fields) == 2:  # noqa: PLR2004 - a node's, on the hot path
            return f"{parts[0]}/{parts[1]}".encode()
        return "/".join(map(str, parts if len(self._key_fields) > 1 else (parts,))).encode()


def encode(message: BaseModel | msgspec.Struct) -> bytes:
    """Compact JSON, the same for equal messages.

    A float that is not finite becomes null, which is `unknown`: no reader ever sees NaN.
    """
    if isinstance(message, BaseModel):
        return message.model_dump_json().encode()
    return _ENCODER.encode(message)


def _pydantic(model: Any) -> type[BaseModel]:  # noqa: ANN401 - the caller's class is generic
    return model_of(model) if issubclass(model, msgspec.Struct) else cast("type[BaseModel]", model)


def _by_contract(model: type[BaseModel], value: bytes) -> BaseModel:
    """The pydantic model of a value.  Raises _UnusableError with the best reason there is."""
    try:
        content = from_json(value, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        msg = f"no JSON: {error}"
        raise _UnusableError(msg) from None
    try:
        return model.model_validate_json(value)
    except ValidationError as error:
        _refuse_head(model, content)
        raise _UnusableError(_first(error)) from None


def _refuse_head(model: type[BaseModel], content: object) -> None:
    """Raise if type or version explain a refusal: they say more than the first field that broke."""
    if not isinstance(content, dict):
        return
    kind, versions = _head(model)
    if content.get("type", kind) != kind:
        msg = f"the type is {content['type']!r:.80}, this topic holds {kind!r}"
        raise _UnusableError(msg)
    version = content.get("version", versions[-1])
    if isinstance(version, int) and not isinstance(version, bool) and version > versions[-1]:
        shown = version if version < 2**31 else "(a huge number)"
        msg = f"version {shown} is newer than {versions[-1]}, the newest that this release reads; "
        raise _UnusableError(msg + "upgrade the reader")


@cache
def _head(model: type[BaseModel]) -> tuple[object, tuple[int, ...]]:
    """The type that a model accepts and the versions, oldest first."""
    fields = model.model_fields
    if "type" not in fields or "version" not in fields:
        msg = f"{model.__name__} is no message: it has no type and version"
        raise TypeError(msg)
    return fields["type"].default, tuple(sorted(get_args(fields["version"].annotation)))


def _check_key(key: bytes, expected: bytes) -> None:
    if key != expected:
        msg = f"the key is {key[:120]!r}, the content belongs to {expected[:120]!r}"
        raise _UnusableError(msg)


def _first(error: ValidationError) -> str:
    """The first fault with its place; how many more there are."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part)[:40] for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}" if place else f"{faults[0]['msg']}{more}"


def _line(reason: str) -> str:
    """One printable line of bounded length."""
    text = " ".join(reason.split())
    text = "".join(c if c.isprintable() else "?" for c in text[: MAX_REASON_CHARACTERS + 1])
    return text if len(text) <= MAX_REASON_CHARACTERS else text[: MAX_REASON_CHARACTERS - 1] + "…"
