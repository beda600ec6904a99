"""Checkpoints of the in-process runner: one file, replaced as a whole."""

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from transport.contract import Record

if TYPE_CHECKING:
    from pathlib import Path

FILE = "gpuvigil.state"


class CheckpointError(Exception):
    """The checkpoint can't be used or written; the text says what to do."""


class Checkpoint(Struct, array_like=True):
    """The states of both stages, and of each topic what they still have to read."""

    partitions: int
    taken: int
    """Messages taken from the sources."""
    event_time_ms: int | None
    stage_one: list[dict[bytes, bytes | None]]
    stage_two: list[dict[bytes, bytes | None]]
    tail: list[tuple[str, int, int, list[Record]]]
    """(topic, partition, first offset, records)."""
    version: int = 1


class CheckpointStore:
    """The checkpoint of one run in a folder."""

    def __init__(self, folder: "Path", partitions: int) -> None:
        self._path = folder / FILE
        self._partitions = partitions
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot use {folder} for checkpoints: {error.strerror}"
            ) from error

    def load(self) -> Checkpoint | None:
        """The last checkpoint, None where there is none.  Raises CheckpointError if unusable."""
        try:
            saved = msgspec.msgpack.decode(self._path.read_bytes(), type=Checkpoint)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, ValueError) as error:
            raise CheckpointError(
                f"cannot read {self._path}: {error}; move it away to start anew"
            ) from error
        if saved.version > 1 or saved.partitions != self._partitions:
            raise CheckpointError(
                f"{self._path} was written with {saved.partitions} partitions in form "
                f"{saved.version}, this run has {self._partitions} in form 1; "
                "use the same settings and release, or move the file away to start anew"
            )
        return saved

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint: after a crash there is the old one or the new one."""
        new = self._path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(msgspec.msgpack.encode(checkpoint))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise CheckpointError(f"cannot write {self._path}: {error.strerror}") from error
