"""What the engine knows of an operator, and which topics feed which stage."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.topics import PODS, STATE_PREFIX, TELEMETRY, WINDOWS
from streams.outputs import Output
from transport.contract import Record

Place = tuple[str, int]
"""A topic, without prefix, and a partition."""


class Operator(Protocol):
    """Everything of one stage at one partition: synchronous, without a clock, without I/O."""

    partition: int
    counters: Counter[str]

    @property
    def progress_ms(self) -> int:
        """Event time up to which everything is complete; 0 before the first of it."""
        ...

    def process(self, records: Iterable[Record]) -> list[Output]:
        """Take records of one topic in their order; the outputs that follow."""
        ...

    def forget(self) -> None:
        """Drop keys that ended long ago; called before `dump`."""
        ...

    def dump(self) -> dict[bytes, bytes | None]:
        """The state by key; None for a key that has ended."""
        ...

    def load(self, states: Mapping[bytes, bytes | None]) -> None:
        """Take over what `dump` gave.  Raises NewerStateError for a later release's."""
        ...

    def state_version(self, key: bytes) -> int:
        """Version of the form in which `dump` writes a key."""
        ...

    def resume_offsets(self) -> dict[str, int]:
        """For each topic the first offset that a successor has to read."""
        ...

    def reposition(self, topic: str, offset: int) -> None:
        """The topic begins anew at `offset`."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """A kind of operator and the topics that feed it."""

    name: str
    topics: tuple[str, ...]

    @property
    def state_topic(self) -> str:
        """Where its checkpoints lie."""
        return STATE_PREFIX + self.name


BY_NODE = Stage("node", (TELEMETRY, PODS))
BY_WORKLOAD = Stage("workload", (WINDOWS,))
STAGES = (BY_NODE, BY_WORKLOAD)
STAGE_OF = {topic: stage for stage in STAGES for topic in stage.topics}

MakeOperator = Callable[[Stage, int], Operator]
