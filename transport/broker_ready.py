"""Asks a broker's node which nodes it knows, in the few bytes of Kafka's protocol that it takes.

A Kafka client would do as well, but the development broker needs none otherwise.
"""

import socket
import struct

METADATA, VERSION, CORRELATION = 3, 4, 1
CLIENT = b"gpuvigil"
ANSWER_SECONDS = 2.0


def known_nodes(port: int, host: str = "127.0.0.1") -> int:
    """How many live nodes this one knows of; 0 while it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(_request())
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                return _nodes(answer.read(size))
    except (OSError, struct.error):
        return 0


def _request() -> bytes:
    """Metadata of no topic, creating none."""
    header = struct.pack(">hhih", METADATA, VERSION, CORRELATION, len(CLIENT)) + CLIENT
    body = struct.pack(">i?", 0, False)  # noqa: FBT003 - the wire's order
    return struct.pack(">i", len(header) + len(body)) + header + body


def _nodes(answer: bytes) -> int:
    """After correlation id and throttle time comes the number of brokers."""
    _correlation, _throttle_ms, nodes = struct.unpack_from(">iii", answer)
    return int(nodes)
