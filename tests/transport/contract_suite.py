"""What every transport must do.  A test module subclasses this and gives the two fixtures."""

import pytest

from transport.contract import OffsetOutOfRangeError, Transport, UnknownPartitionError

TOPIC = "a.topic"
OTHER = "another.topic"
PARTITIONS = 3
"""TOPIC and OTHER both have this many, all empty when a test begins."""


class TransportContract:
    """Tests over a fixture `transport`, which a subclass overrides."""

    @pytest.fixture
    def transport(self) -> Transport:
        raise NotImplementedError

    async def test_offsets_count_from_where_the_partition_began(self, transport: Transport) -> None:
        begin, end = await transport.offsets(TOPIC, 0)
        assert begin == end
        published = [await transport.publish(TOPIC, 0, None, b"%d" % i) for i in range(5)]
        assert published == list(range(end, end + 5))
        assert await transport.offsets(TOPIC, 0) == (begin, end + 5)

    async def test_a_record_comes_back_as_it_was(self, transport: Transport) -> None:
        headers = (("ce_id", b"1/1"), ("empty", b""), ("ce_id", b"again"))
        offset = await transport.publish(TOPIC, 1, b"key\x00\xff", b"\x00value\xff", headers)
        (record,) = await transport.read(TOPIC, 1, offset, 10)
        assert (record.topic, record.partition, record.offset) == (TOPIC, 1, offset)
        assert (record.key, record.value) == (b"key\x00\xff", b"\x00value\xff")
        assert tuple(record.headers) == headers

    async def test_absent_and_empty_are_not_the_same(self, transport: Transport) -> None:
        first = await transport.publish(TOPIC, 0, None, b"")
        await transport.publish(TOPIC, 0, b"", None)
        absent, tombstone = await transport.read(TOPIC, 0, first, 10)
        assert (absent.key, absent.value, tuple(absent.headers)) == (None, b"", ())
        assert (tombstone.key, tombstone.value) == (b"", None)

    async def test_reading_pages_in_order(self, transport: Transport) -> None:
        first = await transport.publish(TOPIC, 2, None, b"0")
        for number in range(1, 10):
            await transport.publish(TOPIC, 2, None, b"%d" % number)
        seen: list[bytes | None] = []
        at = first
        while page := await transport.read(TOPIC, 2, at, 3):
            assert len(page) <= 3
            assert [record.offset for record in page] == list(range(at, at + len(page)))
            seen += [record.value for record in page]
            at = page[-1].offset + 1
        assert seen == [b"%d" % number for number in range(10)]

    async def test_reading_takes_nothing_away(self, transport: Transport) -> None:
        offset = await transport.publish(TOPIC, 0, b"k", b"v")
        assert list(await transport.read(TOPIC, 0, offset, 1)) == list(
            await transport.read(TOPIC, 0, offset, 1)
        )

    async def test_the_end_is_empty_and_beyond_it_is_an_error(self, transport: Transport) -> None:
        await transport.publish(TOPIC, 0, None, b"v")
        _, end = await transport.offsets(TOPIC, 0)
        assert list(await transport.read(TOPIC, 0, end, 10)) == []
        with pytest.raises(OffsetOutOfRangeError):
            await transport.read(TOPIC, 0, end + 1, 10)

    async def test_below_the_beginning_is_an_error(self, transport: Transport) -> None:
        begin, _ = await transport.offsets(TOPIC, 0)
        with pytest.raises(OffsetOutOfRangeError):
            await transport.read(TOPIC, 0, begin - 1, 10)

    async def test_partitions_and_topics_are_apart(self, transport: Transport) -> None:
        before = await transport.offsets(TOPIC, 1), await transport.offsets(OTHER, 0)
        await transport.publish(TOPIC, 0, b"k", b"v")
        assert (await transport.offsets(TOPIC, 1), await transport.offsets(OTHER, 0)) == before

    async def test_append_times_never_go_back(self, transport: Transport) -> None:
        first = await transport.publish(TOPIC, 0, None, b"0")
        for _ in range(9):
            await transport.publish(TOPIC, 0, None, b"1")
        times = [record.append_time_ms for record in await transport.read(TOPIC, 0, first, 10)]
        assert len(times) == 10
        assert times == sorted(times)
        assert times[0] > 0

    async def test_it_knows_how_many_partitions_there_are(self, transport: Transport) -> None:
        assert await transport.partitions(TOPIC) == PARTITIONS
        with pytest.raises(UnknownPartitionError, match=r"no\.such"):
            await transport.partitions("no.such.topic")

    @pytest.mark.parametrize(("topic", "partition"), [("no.such.topic", 0), (TOPIC, PARTITIONS)])
    async def test_what_does_not_exist_is_an_error(
        self, transport: Transport, topic: str, partition: int
    ) -> None:
        with pytest.raises(UnknownPartitionError):
            await transport.publish(topic, partition, None, b"v")
        with pytest.raises(UnknownPartitionError):
            await transport.read(topic, partition, 0, 1)
        with pytest.raises(UnknownPartitionError):
            await transport.offsets(topic, partition)
