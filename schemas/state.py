"""A checkpoint's records: what an operator remembers under one key."""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from schemas.wire import Count, Message, Text


class StateRecord(Message):
    """State of one key, or the end of it, on `gpu.state.<stage>`.  Key: the state key.

    The last record of a key wins.  Its offsets say which source messages are in it, and so which
    ones to skip after a load.
    """

    type: Literal["state_record"] = "state_record"
    version: Literal[1] = 1
    stage: Text
    source_partition: Count
    key: Annotated[str, Field(max_length=4096)]
    operator: Text
    """The operator whose state this is."""
    operator_version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Version of the state's form; a reader that is older stops and says so."""
    partitions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Partitions of the source topics when this was written; None: not said."""
    next_offsets: Annotated[dict[Text, Count], Field(max_length=64)]
    """By source topic: the first offset that is not in the state."""
    tombstone: bool = False
    """True: the key has ended and `state` is None."""
    state: JsonValue = None

    @model_validator(mode="after")
    def _end_has_no_state(self) -> Self:
        if self.tombstone and self.state is not None:
            msg = "a tombstone holds no state"
            raise ValueError(msg)
        return self
