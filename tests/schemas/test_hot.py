from typing import Annotated, Any, get_args

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, Field

from schemas import hot, windows
from schemas.alerts import AlertEvent
from schemas.hot import model_of, struct_of


class Checked(BaseModel):
    """A validator can't be carried over."""

    name: Annotated[str, AfterValidator(str.strip)]


class Pattern(BaseModel):
    name: Annotated[str, Field(pattern="a")]


class Made(BaseModel):
    names: list[str] = Field(default_factory=lambda: ["a"])


class Whole(BaseModel):
    inner: Pattern


@pytest.mark.parametrize("model", [Checked, Pattern, Made, Whole, AlertEvent])
def test_what_cannot_be_carried_over_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(TypeError, match="carried over"):
        struct_of(model)


def test_a_struct_is_made_once_and_knows_its_model() -> None:
    struct = struct_of(windows.SeriesWindow)
    assert struct is struct_of(windows.SeriesWindow)
    assert model_of(struct) is windows.SeriesWindow


def test_structs_are_frozen_and_named() -> None:
    make: Any = hot.SeriesEnd
    end = make(node="n", device_uuid="u", reason="pod deleted")
    with pytest.raises(AttributeError):
        end.node = "m"
    with pytest.raises(TypeError):
        make("n", "u", None, "pod deleted")
    assert end.pod_uid is None
    assert isinstance(end, msgspec.Struct)


def test_parts_of_a_message_are_the_structs_that_the_names_stand_for() -> None:
    fields = {f.name: f.type for f in msgspec.structs.fields(struct_of(windows.WorkloadWindow))}
    (series,) = get_args(fields["series"])[:1]
    assert get_args(series) == (hot.SeriesWindow, ...)
