"""What waits for Kafka on a node: bounded in bytes, and whoever puts something in never waits."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

DEFAULT_BYTES = 64 * 2**20

OVERHEAD_BYTES = 256
"""What a waiting message takes beside its key and value."""


class Outgoing(NamedTuple):
    """A message on its way to a partition."""

    topic: str
    """As Kafka knows it, with the installation's prefix."""
    partition: int
    key: bytes
    value: bytes

    @property
    def size_bytes(self) -> int:
        """What it takes of a buffer."""
        return len(self.key) + len(self.value) + OVERHEAD_BYTES


class Buffer:
    """Messages in the order in which they came; the oldest that waits goes first when it is full.

    What was taken stays in the count until it is settled, because it may have to come back.  All
    methods may be called from any thread; none of them blocks.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.dropped = 0
        """Messages given up since the beginning because there was no room."""
        self._lock = threading.Lock()
        self._waiting: deque[Outgoing] = deque()
        self._bytes = self._taken = 0

    def __len__(self) -> int:
        """Messages that are neither settled nor dropped."""
        return len(self._waiting) + self._taken

    @property
    def size_bytes(self) -> int:
        """What its messages take, those that were taken among them."""
        return self._bytes

    def put(self, message: Outgoing) -> None:
        """Add at the end; drop from the front what has no room."""
        with self._lock:
            self._waiting.append(message)
            self._bytes += message.size_bytes
            self._trim()

    def first(self) -> Outgoing | None:
        """The message that `take` would return; another thread may drop it meanwhile."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def take(self, expected: Outgoing) -> bool:
        """Take the first message if it is still the expected one."""
        with self._lock:
            if not self._waiting or self._waiting[0] is not expected:
                return False
            self._waiting.popleft()
            self._taken += 1
            return True

    def settle(self, message: Outgoing) -> None:
        """A taken message is acknowledged or given up: it leaves the buffer."""
        with self._lock:
            self._taken -= 1
            self._bytes -= message.size_bytes

    def put_back(self, messages: Iterable[Outgoing]) -> None:
        """Return taken messages to the front, in their order; they are the oldest again."""
        returned = list(messages)
        with self._lock:
            self._taken -= len(returned)
            self._waiting.extendleft(reversed(returned))
            self._trim()

    def _trim(self) -> None:
        while self._bytes > self.max_bytes and self._waiting:
            self._bytes -= self._waiting.popleft().size_bytes
            self.dropped += 1
