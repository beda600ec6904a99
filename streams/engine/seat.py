"""One stage at one partition while this worker holds it: which offset comes next, and no other."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streams.engine.operators import Operator, Place, Stage
from streams.outputs import Output
from transport.contract import Record


class Taken(NamedTuple):
    """What came of a batch."""

    outputs: list[Output]
    seek_to: int | None = None
    """Go back to this offset of the batch's topic: records before the batch are missing."""


class Seat:
    """Gives an operator each record once and in order, whatever the consumer hands over.

    Records below the next offset were taken before.  A hole in front of a batch makes one seek
    back, because a consumer may lose its place; where the hole stays it is real (retention,
    another writer's transaction) and is counted.
    """

    def __init__(self, stage: Stage, operator: Operator) -> None:
        self.stage = stage
        self.operator = operator
        self.live = False
        """Whether it takes records; what comes while it does not will come again by a seek."""
        self.saved: dict[bytes, int] = {}
        """Hash of each key's state as the checkpoint topic holds it."""
        self.newest_append_ms = 0
        self.counters: Counter[str] = Counter()
        self.next = {topic: operator.resume_offsets().get(topic, 0) for topic in stage.topics}
        self._went_back: dict[str, int] = {}

    @property
    def key(self) -> tuple[str, int]:
        """Stage and partition."""
        return self.stage.name, self.partition

    @property
    def partition(self) -> int:
        """The partition of all its topics."""
        return self.operator.partition

    @property
    def places(self) -> dict[Place, int]:
        """Its topics and partition with the next offset of each."""
        return {(topic, self.partition): offset for topic, offset in self.next.items()}

    def take(self, topic: str, records: Sequence[Record]) -> Taken:
        """Process what is new of a batch of one topic.  Raises what an operator may not survive."""
        if not self.live or not records:
            return Taken([])
        batch = self._new(topic, records)
        if not batch:
            return Taken([])
        if (hole := batch[0].offset) > self.next[topic] and self._goes_back(topic):
            return Taken([], seek_to=self.next[topic])
        self._count_holes(topic, batch, hole)
        self.next[topic] = batch[-1].offset + 1
        self.newest_append_ms = max(self.newest_append_ms, batch[-1].append_time_ms)
        self.counters["records"] += len(batch)
        return Taken(self.step(lambda: self.operator.process(batch)))

    def step(self, work: Callable[[], list[Output]]) -> list[Output]:
        """Let the operator work.  Where it raises, half of that is in its states: they end here."""
        try:
            return work()
        except BaseException:
            self.live = False
            raise

    def reposition(self, topic: str, offset: int) -> None:
        """The topic begins anew at `offset`."""
        self.operator.reposition(topic, offset)
        self.next[topic] = offset

    def counted(self) -> Counter[str]:
        """What the seat and its operator have counted."""
        return self.counters + self.operator.counters

    def _new(self, topic: str, records: Sequence[Record]) -> Sequence[Record]:
        wanted = self.next[topic]
        if records[0].offset >= wanted:
            return records
        new = [record for record in records if record.offset >= wanted]
        self.counters["replayed"] += len(records) - len(new)
        return new

    def _goes_back(self, topic: str) -> bool:
        if self._went_back.get(topic) == self.next[topic]:
            return False
        self._went_back[topic] = self.next[topic]
        self.counters["seeks_back"] += 1
        return True

    def _count_holes(self, topic: str, batch: Sequence[Record], first: int) -> None:
        inside = batch[-1].offset - first + 1 - len(batch)
        missing = first - self.next[topic] + inside
        if missing:
            self.counters["missing_offsets"] += missing
