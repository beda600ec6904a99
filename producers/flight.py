"""What is on its way to Kafka: handed over and not yet acknowledged, in order."""

from producers.buffer import Outgoing


class Flight:
    """Says which message may go next, so that order and bounds hold.

    What one key says keeps its order over all topics: Kafka itself keeps it only within one.  So a
    message waits while its key has something on another topic in flight.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: dict[int, Outgoing] = {}
        self._by_key: dict[bytes, tuple[str, int]] = {}
        self._alone: set[int] = set()

    def __len__(self) -> int:
        """Messages in flight."""
        return len(self._messages)

    def takes(self, message: Outgoing) -> bool:
        """Whether the message may go now.  One always may, however large it is."""
        if not self._messages:
            return True
        alone = id(message) in self._alone or not self._alone.isdisjoint(self._messages)
        topic, _ = self._by_key.get(message.key, (message.topic, 0))
        fits = self._bytes + message.size_bytes <= self._max_bytes
        return fits and not alone and topic == message.topic

    def add(self, message: Outgoing) -> None:
        """The message goes."""
        self._messages[id(message)] = message
        self._bytes += message.size_bytes
        _, count = self._by_key.get(message.key, (message.topic, 0))
        self._by_key[message.key] = (message.topic, count + 1)

    def remove(self, message: Outgoing) -> None:
        """The message is acknowledged or given up."""
        del self._messages[id(message)]
        self._alone.discard(id(message))
        self._bytes -= message.size_bytes
        topic, count = self._by_key.pop(message.key)
        if count > 1:
            self._by_key[message.key] = (topic, count - 1)

    def keep_alone(self, message: Outgoing) -> None:
        """Let it go without company from now on, so that a refusal is about this one message."""
        self._alone.add(id(message))

    def is_alone(self, message: Outgoing) -> bool:
        """Whether it went without company."""
        return id(message) in self._alone

    def clear(self) -> list[Outgoing]:
        """End the flight and return its messages, the first sent first."""
        messages = list(self._messages.values())
        self._messages.clear()
        self._by_key.clear()
        self._bytes = 0
        return messages
