"""Structs of the hot path, derived from the pydantic models so that there is one definition.

msgspec decodes into a struct about three times as fast as pydantic into a model, and making one
costs a tenth.  A struct has the model's fields, defaults and constraints; `tests/schemas/
test_hot_equals_pydantic.py` holds the two equal on hostile input.  Only reading attributes works on
both, so annotate with the model and do nothing else.
"""

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import annotated_types as bounds
import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas import pods, services, telemetry, windows

__all__ = [
    "HOT",
    "NodeTelemetry",
    "PodEvent",
    "SeriesEnd",
    "SeriesWindow",
    "ServiceSignal",
    "WindowContribution",
    "WorkloadWindow",
    "model_of",
    "struct_of",
]

_MODELS: dict[type[msgspec.Struct], type[BaseModel]] = {}


@cache
def struct_of(model: type[BaseModel]) -> type[msgspec.Struct]:
    """The frozen struct with the fields, defaults and constraints of a model.

    Raises TypeError for an annotation that it can't carry over exactly (a validator, say): such a
    model stays off the hot path.
    """
    hints = get_type_hints(model, include_extras=True)
    fields = [_field(name, hints[name], info) for name, info in model.model_fields.items()]
    struct = msgspec.defstruct(
        model.__name__,
        fields,
        module=f"{__name__}.structs",
        frozen=True,
        kw_only=True,
        # A tree of immutable values can't hold a cycle, so the collector need not visit it.
        gc=False,
        forbid_unknown_fields=model.model_config.get("extra") == "forbid",
    )
    _MODELS[struct] = model
    return struct


def model_of(struct: type[msgspec.Struct]) -> type[BaseModel]:
    """The model that a struct was derived from.  Raises KeyError for any other struct."""
    return _MODELS[struct]


def _field(name: str, hint: object, info: FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    annotation = _annotation(hint)
    if info.is_required():
        return name, annotation
    default = info.get_default(call_default_factory=False)
    if info.default_factory is not None or isinstance(default, BaseModel):
        msg = f"{name}: only a plain default can be carried over to a struct"
        raise TypeError(msg)
    return name, annotation, default


def _annotation(hint: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    """The same annotation in msgspec's words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _constrained(_annotation(arguments[0]), dict(_meta(arguments[1:])))
    if origin is Union or origin is types.UnionType:
        return Union[tuple(_annotation(argument) for argument in arguments)]  # noqa: UP007
    if origin in (tuple, dict):
        inner = (a if a is Ellipsis else _annotation(a) for a in arguments)
        return origin[tuple(inner)]
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return struct_of(hint)
    return hint


def _constrained(annotation: Any, meta: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
    return Annotated[annotation, msgspec.Meta(**meta)] if meta else annotation


def _meta(metadata: tuple[object, ...]) -> Iterator[tuple[str, Any]]:
    """Constraints of an Annotated in the names of msgspec.Meta."""
    for item in metadata:
        match item:
            case FieldInfo():
                yield from _meta(tuple(item.metadata))
            case bounds.Ge():
                yield "ge", item.ge
            case bounds.Gt():
                yield "gt", item.gt
            case bounds.Le():
                yield "le", item.le
            case bounds.Lt():
                yield "lt", item.lt
            case bounds.MinLen():
                yield "min_length", item.min_length
            case bounds.MaxLen():
                yield "max_length", item.max_length
            case _:
                msg = f"{item!r} can't be carried over to a struct"
                raise TypeError(msg)


if TYPE_CHECKING:
    from schemas.pods import PodEvent
    from schemas.services import ServiceSignal
    from schemas.telemetry import NodeTelemetry
    from schemas.windows import SeriesEnd, SeriesWindow, WindowContribution, WorkloadWindow
else:
    NodeTelemetry = struct_of(telemetry.NodeTelemetry)
    PodEvent = struct_of(pods.PodEvent)
    ServiceSignal = struct_of(services.ServiceSignal)
    WindowContribution = struct_of(windows.WindowContribution)
    WorkloadWindow = struct_of(windows.WorkloadWindow)
    SeriesWindow = struct_of(windows.SeriesWindow)
    SeriesEnd = struct_of(windows.SeriesEnd)

HOT: frozenset[type[BaseModel]] = frozenset(
    {
        telemetry.NodeTelemetry,
        pods.PodEvent,
        services.ServiceSignal,
        windows.WindowContribution,
    }
)
"""The messages that are decoded into structs."""
