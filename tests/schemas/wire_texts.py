"""JSON texts of messages, made from the models' annotations: sound ones, and hostile ones.

A text is built from a tree of `Node`, not from Python values, because what is hostile (`1.0` for an
int, NaN, a name twice) can't be told from what is sound once it is a Python value.
"""

import json
import types
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types as bounds
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass
class Node:
    """A value of a JSON text: a token, or the members of an object or array."""

    token: str = ""
    members: list[tuple[str, "Node"]] | None = None
    items: list["Node"] | None = None
    model: bool = False
    """Whether it is an object whose unknown members a reader ignores."""

    def text(self) -> str:
        if self.members is not None:
            return "{" + ",".join(f"{k}:{v.text()}" for k, v in self.members) + "}"
        if self.items is not None:
            return "[" + ",".join(item.text() for item in self.items) + "]"
        return self.token

    def nodes(self) -> list["Node"]:
        inner = [v for _, v in self.members or []] + (self.items or [])
        return [self, *(n for child in inner for n in child.nodes())]

    def replace(self, token: str) -> None:
        self.token, self.members, self.items, self.model = token, None, None, False


@dataclass
class Limits:
    ge: float | None = None
    le: float | None = None
    gt: float | None = None
    max_length: int | None = None
    others: list[object] = field(default_factory=list)


def limits(metadata: tuple[object, ...]) -> Limits:
    found = Limits()
    for item in metadata:
        for part in item.metadata if isinstance(item, FieldInfo) else [item]:
            match part:
                case bounds.Ge():
                    found.ge = part.ge  # type: ignore[assignment]  # any comparable by its type
                case bounds.Le():
                    found.le = part.le  # type: ignore[assignment]
                case bounds.Gt():
                    found.gt = part.gt  # type: ignore[assignment]
                case bounds.MaxLen():
                    found.max_length = part.max_length
                case _:
                    found.others.append(part)
    assert found.others == [], "a constraint that the strategies do not know"
    return found


def message(model: type[BaseModel]) -> st.SearchStrategy[Node]:
    """A sound message with any choice of its optional fields, in any order."""
    hints = get_type_hints(model, include_extras=True)
    required: dict[str, st.SearchStrategy[Node]] = {}
    optional: dict[str, st.SearchStrategy[Node]] = {}
    for name, info in model.model_fields.items():
        (required if info.is_required() else optional)[name] = value(hints[name])
    pairs = st.fixed_dictionaries(required, optional=optional).flatmap(
        lambda drawn: st.permutations([(json.dumps(name), node) for name, node in drawn.items()])
    )
    return pairs.map(lambda members: Node(members=list(members), model=True))


def value(hint: Any, limit: Limits | None = None) -> st.SearchStrategy[Node]:  # noqa: ANN401, PLR0911
    """A sound value of an annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    limit = limit or Limits()
    if origin is Annotated:
        return value(arguments[0], limits(arguments[1:]))
    if origin is Union or origin is types.UnionType:
        return st.one_of([value(argument) for argument in arguments])
    if origin is Literal:
        return st.sampled_from(arguments).map(token)
    if origin is tuple:
        return st.lists(value(arguments[0]), max_size=2).map(lambda items: Node(items=items))
    if origin is dict:
        pairs = st.tuples(st.text(max_size=5).map(json.dumps), value(arguments[1]))
        return st.lists(pairs, max_size=3).map(lambda members: Node(members=members))
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return message(hint)
    return plain(hint, limit).map(token)


def plain(hint: object, limit: Limits) -> st.SearchStrategy[object]:
    if hint is int:
        low, high = limit.ge, limit.le
        return st.integers(None if low is None else int(low), None if high is None else int(high))
    if hint is float:
        low = limit.ge if limit.gt is None else limit.gt
        return st.floats(
            low, limit.le, exclude_min=limit.gt is not None, allow_nan=False, allow_infinity=False
        )
    if hint is str:
        length = limit.max_length or 10
        return st.text(max_size=8) | st.just("é" * length) | st.just("🛰" * length)
    if hint is bool:
        return st.booleans()
    assert hint is type(None), hint
    return st.none()


def token(value: object) -> Node:
    return Node(json.dumps(value))


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


HOSTILE = [
    *("null", "true", "false", '""', '"x"', '"1"', "{}", "[]", "[null]", '{"a":1}'),
    *("0", "-0", "1", "-1", "1.0", "1.5", "1e0", "1E2", "10e-1", "-0.0", "1e-400", "2"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551615", "18446744073709551616", "1" + "0" * 400, "-1" + "0" * 400),
    *("1e308", "1e309", "1e400", "-1e400", "NaN", "nan", "Infinity", "-Infinity"),
    *("9007199254740993", "253402300799999", "253402300800000", "3600", "3600.0001", "1e-9"),
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude00"', r'"\u0000"', r'"\x41"', '"\t"'),
    *('"' + "é" * 512 + '"', '"' + "é" * 513 + '"', '"' + "🛰" * 513 + '"'),
    *('"' + "é" * 4096 + '"', '"' + "é" * 4097 + '"', deep(150)),
    *("01", "+1", ".5", "1.", "-", "1e", "tru", "'x'", "undefined", "", "//", "1 1"),
]
"""Tokens of which each is wrong somewhere; some are right elsewhere, or no JSON at all."""


@st.composite
def hostile(draw: st.DrawFn, model: type[BaseModel]) -> bytes:
    """A message after up to three faults of its content and at most one of its bytes."""
    root = draw(message(model))
    for _ in range(draw(st.integers(0, 3))):
        spoil(draw, draw(st.sampled_from(root.nodes())))
    return spoilt_bytes(draw, root.text().encode("utf-8", "surrogatepass"))


def spoil(draw: st.DrawFn, node: Node) -> None:
    bad = Node(draw(st.sampled_from(HOSTILE)))
    if not node.members or draw(st.booleans()):
        node.replace(bad.token)
        return
    place = draw(st.integers(0, len(node.members) - 1))
    name = node.members[place][0]
    match draw(st.sampled_from(["drop", "twice", "twice before", "unknown"])):
        case "drop":
            del node.members[place]
        case "twice":
            node.members.append((name, bad))
        case "twice before":
            node.members.insert(0, (name, bad))
        case _:
            strange = draw(st.sampled_from(['"new"', '""', r'"\u006eew"', r'"\ud800"']))
            node.members.insert(place, (strange, bad))


def spoilt_bytes(draw: st.DrawFn, raw: bytes) -> bytes:
    place = draw(st.integers(0, max(0, len(raw) - 1)))
    match draw(st.sampled_from(["whole", "whole", "whole", "cut", "byte", "more"])):
        case "cut":
            return raw[:place]
        case "byte":
            return raw[:place] + bytes([draw(st.integers(0, 255))]) + raw[place + 1 :]
        case "more":
            return raw + draw(st.sampled_from([b" ", b"\n", b"x", b"{}", b"\0", b"\xff"]))
        case _:
            return raw
