import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from schemas.codec import Decoder, encode
from schemas.state import StateRecord

DECODER = Decoder(StateRecord, "gpu.state.one")

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def record(**fields: object) -> StateRecord:
    head = {"stage": "one", "source_partition": 0, "key": "c/n", "operator": "windows"}
    rest = {"operator_version": 1, "next_offsets": {"gpu.telemetry": 7}}
    return StateRecord.model_validate({**head, **rest, **fields})


@given(values)
def test_state_comes_back_exactly(state: JsonValue) -> None:
    message = record(state=state)
    again = DECODER.decode(encode(message), partition=0, offset=0, key=b"c/n")
    assert repr(again) == repr(message)


def test_a_tombstone_holds_no_state() -> None:
    assert record(tombstone=True).state is None
    with pytest.raises(ValidationError, match="a tombstone holds no state"):
        record(tombstone=True, state={})
