"""Versions of dumped states: a newer one is told, never overwritten."""

import msgspec


class NewerStateError(Exception):
    """A state was written by a later release than this one."""


class _Head(msgspec.Struct):
    version: int = 1


def checked_version(key: bytes, value: bytes, newest: int) -> int:
    """The version of a dumped state.  Raises NewerStateError where it is above `newest`."""
    version = msgspec.json.decode(value, type=_Head).version
    if version > newest:
        raise NewerStateError(
            f"the state of {key.decode(errors='replace')} has version {version}, this release "
            f"reads up to {newest}; run the release that wrote it or a later one"
        )
    return version
