"""A file of states: a header, then one state record a line, each as its topic held it.

Everything of a file is looked at before anything of it is used.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Struct

from schemas.codec import DecodeError, Decoder
from schemas.parameters import DetectorParameters
from schemas.state import StateRecord
from schemas.topics import STATE_PREFIX
from streams.engine.operators import BY_NODE, STAGES
from streams.stage_one import StageOne
from streams.stage_two import StageTwo
from streams.states import NewerStateError

SeatKey = tuple[str, int]
"""The name of a stage and a partition of its topic."""

STAGE_NAMES = frozenset(stage.name for stage in STAGES)


class StateFileError(Exception):
    """States that can't be read or must not be written; the text says what to do."""


class Stored(NamedTuple):
    """The state of one key."""

    record: bytes
    """The whole record as its topic holds it."""
    version: int
    """Of the state's form."""
    next_offsets: dict[str, int]
    state: bytes
    """As the operator dumped it."""


States = dict[SeatKey, dict[bytes, Stored]]


class Header(Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    type: Literal["state_file"] = "state_file"
    version: Literal[1] = 1
    prefix: str
    """Of the topics that the states come from; their offsets are those of these topics."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    release: str
    """Of gpuvigil, that wrote the file."""
    records: int
    """Lines that follow."""


class _Fields(Struct):
    """What is needed of a record, with its state as it was dumped."""

    stage: str
    source_partition: int
    key: str
    operator_version: int
    next_offsets: dict[str, int]
    partitions: int | None = None
    tombstone: bool = False
    state: msgspec.Raw = msgspec.Raw(b"null")


class StateReader:
    """Reads records of one installation: those of a topic, or the lines of a file."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._decoder = Decoder(StateRecord, STATE_PREFIX)
        self._parameters = DetectorParameters()

    def read(self, record: bytes) -> tuple[SeatKey, bytes, Stored | None]:
        """Where a record belongs, its key, and its state; None for the end of the key.

        Raises StateFileError with the reason for a record that no worker of this release and this
        number of partitions could load.
        """
        try:
            self._decoder.decode(record, partition=0, offset=0)
            fields = msgspec.json.decode(record, type=_Fields)
        except DecodeError as error:
            raise StateFileError(f"is no state record: {error.reason}") from None
        except msgspec.MsgspecError as error:
            raise StateFileError(f"is no state record: {error}") from None
        seat = self._seat(fields)
        key = fields.key.encode()
        if fields.tombstone:
            return seat, key, None
        state = bytes(fields.state)
        self._check_state(seat, key, fields.operator_version, state)
        return seat, key, Stored(record, fields.operator_version, fields.next_offsets, state)

    def _seat(self, fields: _Fields) -> SeatKey:
        if fields.stage not in STAGE_NAMES:
            raise StateFileError(f"is of the stage {fields.stage!r}, which this release has not")
        if fields.partitions not in {None, self._partitions}:
            raise StateFileError(
                f"was written with {fields.partitions} partitions, not {self._partitions}"
            )
        if fields.source_partition >= self._partitions:
            raise StateFileError(
                f"is of partition {fields.source_partition}, there are {self._partitions} from 0 on"
            )
        return fields.stage, fields.source_partition

    def _check_state(self, seat: SeatKey, key: bytes, version: int, state: bytes) -> None:
        """A worker would load it: tried by an operator that is thrown away."""
        stage, partition = seat
        newest = newest_version(stage, key)
        if version > newest:
            raise StateFileError(
                f"holds a state of version {version}, this release reads up to {newest}; use the "
                "release that wrote it or a later one"
            )
        try:
            _made(stage)(partition, self._partitions, self._parameters).load({key: state})
        except NewerStateError as error:
            raise StateFileError(f"is newer than this release: {error}") from None
        except msgspec.MsgspecError as error:
            raise StateFileError(f"holds no state of this release: {error}") from None


def newest_version(stage: str, key: bytes) -> int:
    """Version of the form in which this release writes a key."""
    return _made(stage).state_version(key)


def file_lines(states: States, *, prefix: str, partitions: int, release: str) -> Iterator[bytes]:
    """The lines of a file, with their ends."""
    header = Header(
        prefix=prefix,
        partitions=partitions,
        release=release,
        records=sum(len(held) for held in states.values()),
    )
    yield msgspec.json.encode(header) + b"\n"
    for seat in sorted(states):
        for key in sorted(states[seat]):
            # A line break within JSON is white space.
            yield b" ".join(states[seat][key].record.splitlines()) + b"\n"


def read_file(lines: Iterable[bytes], name: str) -> tuple[Header, States]:
    """A file's header and states.  Raises StateFileError with `name` and the number of the line."""
    numbered = enumerate(lines, 1)
    header = _header(next(numbered, (1, b""))[1], name)
    reader = StateReader(header.partitions)
    states: States = {}
    seen: dict[tuple[SeatKey, bytes], int] = {}
    for number, line in numbered:
        try:
            seat, key, stored = reader.read(line.strip())
        except StateFileError as error:
            raise StateFileError(f"{name}: line {number} {error}") from None
        first = seen.setdefault((seat, key), number)
        if first != number:
            raise StateFileError(f"{name}: line {number} has the key of line {first} again")
        if stored is not None:
            states.setdefault(seat, {})[key] = stored
    if len(seen) != header.records:
        raise StateFileError(
            f"{name} has {len(seen)} records and its header says {header.records}: it is not whole"
        )
    return header, states


def offsets_of(held: Mapping[bytes, Stored], partition_key: bytes) -> dict[str, int]:
    """The offsets that hold for all states of a seat: those of its newest record.

    The partition's own state changes with every save, so its record is the newest one.
    """
    if partition_key in held:
        return held[partition_key].next_offsets
    newest: dict[str, int] = {}
    for stored in held.values():
        for topic, offset in stored.next_offsets.items():
            newest[topic] = max(offset, newest.get(topic, 0))
    return newest


def _made(stage: str) -> type[StageOne] | type[StageTwo]:
    return StageOne if stage == BY_NODE.name else StageTwo


def _header(line: bytes, name: str) -> Header:
    try:
        return msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError as error:
        raise StateFileError(
            f"{name}: line 1 is no header of a state file: {error}; give a file that "
            "`gpuvigil state export` wrote with this release or an earlier one"
        ) from None
