"""A model as JSON and back, exactly.  No pickle: only data of classes on a list is written or read.

An object is written as its class and its attributes, and made again without its constructor.
What river keeps in Rust gives its own bytes, which only the same release reads; so the release
stands in the head and another one relearns.  Functions, generators of random numbers and classes
off the list can not be stored, which `is_storable` says.
"""

import base64
import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from copyreg import __newobj__ as plain_new  # type: ignore[attr-defined] # typeshed lacks it
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1

_PACKAGES = tuple(
    f"river.{name}."
    for name in (
        "_river_rust",
        "anomaly",
        "compose",
        "drift",
        "linear_model",
        "optim",
        "preprocessing",
        "proba",
        "sketch",
        "stats",
        "time_series",
        "utils",
    )
)
_OURS = "streams.series_models"
_RUST = "river._river_rust"
_DICTS: dict[str, type[dict[Any, Any]]] = {
    "dict": dict,
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "defaultdict": defaultdict,
}
_BUILTINS: dict[str, type] = {"int": int, "float": float}
_LEFT_OUT = {"river.proba.gaussian:Gaussian": "_rng"}
"""An attribute that no score depends on: a Gaussian's generator is for drawing samples."""


class NotStorableError(TypeError):
    """Something in the model is no data, or a state is not one of this release's."""


def dumped(model: object) -> str:
    """The model's state.  Raises NotStorableError where a part of it is no data."""
    try:
        state = _Writer().node(model)
        head = {"version": VERSION, "river": _release(), "class": _name(type(model))}
        return json.dumps({**head, "state": state}, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise NotStorableError("the model is nested too deep") from error


def restored(text: str) -> object:
    """The model of a state.

    Raises NotStorableError for a state of another release, or one that is damaged.
    """
    try:
        state = json.loads(text)
        head = (state["version"], state["river"])
        if head != (VERSION, _release()):
            raise NotStorableError(f"the state is of version {head[0]} and river {head[1]}")
        return _Reader().node(state["state"])
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, NotStorableError):
            raise
        raise NotStorableError(f"damaged state: {type(error).__name__}: {error}") from error


def is_storable(model: object) -> bool:
    """Whether the model, as it is now, comes back the same; found out by trying."""
    try:
        text = dumped(model)
        return dumped(restored(text)) == text
    except NotStorableError:
        return False


def _release() -> str:
    return str(sys.modules["river"].__version__)


def _name(kind: type) -> str:
    """The name of a class on the list.  Raises NotStorableError for any other."""
    module = kind.__module__
    if not _on_list(module) or _class(f"{module}:{kind.__qualname__}") is not kind:
        raise NotStorableError(f"{module}.{kind.__qualname__} can not be stored")
    return f"{module}:{kind.__qualname__}"


def _on_list(module: str) -> bool:
    return module == _OURS or f"{module}.".startswith(_PACKAGES)


def _class(name: str) -> type:
    """A class by its listed name; looked up in what is loaded, nothing is imported for it."""
    module, _, qualname = name.partition(":")
    place: Any = sys.modules.get(module)
    if place is None and module.startswith(f"{_RUST}."):
        place = getattr(sys.modules[_RUST], module.removeprefix(f"{_RUST}."), None)
    found = getattr(place, qualname, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise NotStorableError(f"{name} is no class of a model")
    return found


def _attributes(value: object) -> dict[str, object]:
    """What an object holds, whether in its dictionary or in slots."""
    held = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                held[name] = getattr(value, name)
    return held


class _Writer:
    """Values to JSON: scalars as they are, anything else as a list that begins with its tag.

    Mutable things are numbered in the order in which they are met, and named by their number when
    they are met again, so that what is shared stays shared.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []

    def node(self, value: object) -> Any:  # noqa: ANN401 - any JSON
        if value is None or type(value) in (bool, int, str):
            return value
        fixed = self._fixed(value)
        if fixed is not None:
            return fixed
        if id(value) in self._numbers:
            return ["same", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        return self._mutable(value)

    def _fixed(self, value: object) -> Any:  # noqa: ANN401 - any JSON
        """A value that can not change, so that nobody sees whether it is shared; else None."""
        kind = type(value)
        if isinstance(value, float) and kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if isinstance(value, tuple) and kind is tuple:
            return ["tuple", *map(self.node, value)]
        if isinstance(value, frozenset) and kind is frozenset:
            return ["frozenset", *sorted(map(self._text, value))]
        if isinstance(value, type):
            return ["class", value.__name__ if value in _BUILTINS.values() else _name(value)]
        if isinstance(value, MethodType):
            return ["method", value.__name__, self.node(value.__self__)]
        return None

    def _mutable(self, value: object) -> list[Any]:
        kind = type(value)
        if isinstance(value, list) and kind is list:
            return ["list", *map(self.node, value)]
        if isinstance(value, deque) and kind is deque:
            return ["deque", value.maxlen, *map(self.node, value)]
        if isinstance(value, dict) and _DICTS.get(kind.__name__) is kind:
            factory = self.node(getattr(value, "default_factory", None))
            pairs = [[self.node(key), self.node(one)] for key, one in value.items()]
            return ["dict", kind.__name__, factory, *pairs]
        if kind.__module__.startswith(_RUST):
            return self._rust(value)
        return self._object(value)

    def _rust(self, value: object) -> list[Any]:
        """An object of the extension, by its constructor's arguments and the bytes it gives."""
        make, arguments, *rest = tuple(value.__reduce_ex__(2))
        kind, state = type(value), rest[0] if rest else None
        if make is plain_new and arguments[0] is kind and isinstance(state, bytes):
            written = base64.b64encode(state).decode()
            return ["rust", _name(kind), written, *map(self.node, arguments[1:])]
        if make is kind and state is None:
            return ["rust", _name(kind), None, *map(self.node, arguments)]
        raise NotStorableError(f"{kind.__name__} gives no state")

    def _object(self, value: object) -> list[Any]:
        name = _name(type(value))
        left_out = _LEFT_OUT.get(name)
        held = [[k, self.node(v)] for k, v in _attributes(value).items() if k != left_out]
        if isinstance(value, deque):
            return ["object", name, held, value.maxlen, *map(self.node, value)]
        return ["object", name, held]

    @staticmethod
    def _text(value: object) -> str:
        if type(value) is not str:
            raise NotStorableError("only sets of texts can be stored")
        return value


class _Reader:
    """The way back; it numbers in the order in which the writer did."""

    def __init__(self) -> None:
        self._made: list[object] = []
        self._makers: dict[str, Callable[[list[Any]], object]] = {
            "deque": self._deque,
            "dict": self._dict,
            "object": self._object,
            "rust": self._rust,
        }

    def node(self, node: Any) -> Any:  # noqa: ANN401 - any JSON to any value
        if not isinstance(node, list):
            return node
        tag, *parts = node
        match tag:
            case "tuple":
                return tuple(map(self.node, parts))
            case "same":
                return self._made[parts[0]]
            case "list":
                return self._filled(self._keep([]), parts)
            case "float" | "frozenset" | "class" | "method":
                return self._fixed(tag, parts)
        return self._makers[tag](parts)

    def _fixed(self, tag: str, parts: list[Any]) -> object:
        match tag:
            case "float":
                return float(parts[0])
            case "frozenset":
                return frozenset(parts)
            case "class":
                return _BUILTINS.get(parts[0]) or _class(_listed(parts[0]))
        return _method(self.node(parts[1]), parts[0])

    def _deque(self, parts: list[Any]) -> object:
        return self._filled(self._keep(deque(maxlen=parts[0])), parts[1:])

    def _dict(self, parts: list[Any]) -> object:
        name, factory, *pairs = parts
        made = self._keep(_DICTS[name]())
        if isinstance(made, defaultdict):
            made.default_factory = self.node(factory)
        for key, value in pairs:
            made[self.node(key)] = self.node(value)
        return made

    def _rust(self, parts: list[Any]) -> object:
        name, written, *arguments = parts
        if not name.startswith(_RUST):
            raise NotStorableError(f"{name} gives no bytes")
        kind: Any = _class(name)
        place = len(self._made)
        self._made.append(None)
        values = list(map(self.node, arguments))
        made = kind(*values) if written is None else kind.__new__(kind, *values)
        if written is not None:
            made.__setstate__(base64.b64decode(written))
        self._made[place] = made
        return made

    def _object(self, parts: list[Any]) -> object:
        name, held, *sequence = parts
        kind: Any = _class(_listed(name))
        made = self._keep(kind() if name in _LEFT_OUT else kind.__new__(kind))
        for attribute, value in held:
            object.__setattr__(made, attribute, self.node(value))
        if sequence:
            deque.__init__(made, maxlen=sequence[0])
            self._filled(made, sequence[1:])
        return made

    def _filled(self, made: Any, nodes: list[Any]) -> Any:  # noqa: ANN401 - a list or a deque
        made.extend(map(self.node, nodes))
        return made

    def _keep(self, made: Any) -> Any:  # noqa: ANN401 - any value, unchanged
        self._made.append(made)
        return made


def _listed(name: str) -> str:
    """The name, once it is seen to be on the list; a state can't name anything else."""
    module = name.partition(":")[0]
    if not _on_list(module):
        raise NotStorableError(f"{name} is no class of a model")
    return name


def _method(owner: object, name: str) -> MethodType:
    method = getattr(owner, name)
    if not isinstance(method, MethodType) or method.__self__ is not owner:
        raise NotStorableError(f"{name} is no method")
    return method
