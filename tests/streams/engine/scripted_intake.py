"""An intake whose topics lie in memory, and whose rebalances and fetches come as a test says."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from schemas.codec import encode
from schemas.topics import PODS, TELEMETRY, node_key, partition_of
from streams.engine.operators import Place
from tests.streams.harness import Sent
from transport.contract import Record

if TYPE_CHECKING:
    from streams.engine.engine import Engine


class Topics:
    """What a broker would hold of the source topics."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.logs: defaultdict[Place, list[Record]] = defaultdict(list)
        self.begins: Counter[Place] = Counter()

    def publish(self, *sent: Sent) -> None:
        """Append messages where their nodes belong."""
        for at_ms, message in sent:
            topic = TELEMETRY if message.type == "node_telemetry" else PODS
            key = node_key(message.cluster, message.node)
            place = topic, partition_of(key, self.partitions)
            self.append(place, key, encode(message), at_ms)

    def append(self, place: Place, key: bytes, value: bytes, at_ms: int) -> None:
        """Append bytes as they are."""
        self.logs[place].append(Record(*place, self.end(place), at_ms, key, value))

    def make_again(self, place: Place) -> None:
        """Delete a topic's partition and make it anew, empty."""
        self.logs[place] = []
        self.begins[place] = 0

    def end(self, place: Place) -> int:
        """The offset that the next record gets."""
        return self.begins[place] + len(self.logs[place])

    def read(self, place: Place, offset: int, most: int) -> list[Record]:
        """Records from an offset; from the beginning where there is no such offset."""
        if not self.begins[place] <= offset <= self.end(place):
            offset = self.begins[place]
        at = offset - self.begins[place]
        return self.logs[place][at : at + most]


class ScriptedIntake:
    """A member of the group that fetches when it is told to."""

    def __init__(self, topics: Topics) -> None:
        self.engine: Engine | None = None
        self.generation = 0
        self.error: Exception | None = None
        self.wanted: frozenset[Place] = frozenset()
        self.positions: dict[Place, int] = {}
        self.while_answering: Callable[[], None] = lambda: None
        """Called when the ends are known and not told yet."""
        self._topics = topics

    # What the engine asks

    def fetch_from(self, places: Collection[Place]) -> None:
        self.wanted = frozenset(places)

    async def seek(self, positions: Mapping[Place, int]) -> None:
        self.positions.update(positions)

    async def beginning_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        return {place: self._topics.begins[place] for place in places}

    async def end_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        ends = {place: self._topics.end(place) for place in places}
        self.while_answering()
        return ends

    async def commit(self, offsets: Mapping[Place, int]) -> None: ...

    def stop(self, error: Exception) -> None:
        self.error = self.error or error

    # What a test says

    async def revoked(self) -> None:
        """A rebalance begins."""
        self.generation += 1
        assert self.engine is not None
        await self.engine.on_revoked()

    def assigned(self, *partitions: int) -> None:
        """It is over."""
        self.generation += 1
        assert self.engine is not None
        self.engine.on_assigned(partitions)

    def fetch(self, place: Place, most: int = 1 << 30) -> list[Record]:
        """Records as they would lie in the consumer, which goes on behind them."""
        records = self._topics.read(place, self.positions.get(place, 0), most)
        if records:
            self.positions[place] = records[-1].offset + 1
        return records

    def hand_over(self, place: Place, records: list[Record]) -> None:
        """Give the engine what was fetched, and go back where it says so."""
        assert self.engine is not None
        seek_to = self.engine.take(*place, records)
        if seek_to is not None:
            self.positions[place] = seek_to

    def fetch_all(self, most: int = 1 << 30) -> int:
        """Once from every place that is wanted; how many records came."""
        count = 0
        for place in sorted(self.wanted):
            records = self.fetch(place, most)
            count += len(records)
            self.hand_over(place, records)
        return count
