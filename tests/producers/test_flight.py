"""What may go to Kafka at once."""

from producers.buffer import OVERHEAD_BYTES, Outgoing
from producers.flight import Flight


def outgoing(topic: str = "telemetry", key: bytes = b"a", size: int = 10) -> Outgoing:
    return Outgoing(topic, 0, key, bytes(size))


def test_one_key_waits_for_its_other_topic_and_no_other_key_does() -> None:
    flight = Flight(100_000)
    event, scrape, other = outgoing("pods"), outgoing(), outgoing(key=b"b")
    flight.add(event)
    assert not flight.takes(scrape)
    assert flight.takes(other)
    assert flight.takes(outgoing("pods"))
    flight.remove(event)
    assert flight.takes(scrape)


def test_all_of_the_other_topic_has_to_be_acknowledged() -> None:
    flight = Flight(100_000)
    first, second = outgoing("pods"), outgoing("pods")
    flight.add(first)
    flight.add(second)
    flight.add(outgoing(key=b"b"))
    flight.remove(second)
    assert not flight.takes(outgoing())
    flight.remove(first)
    assert flight.takes(outgoing())


def test_bytes_in_flight_are_bounded_but_one_always_goes() -> None:
    flight = Flight(2 * (OVERHEAD_BYTES + 11))
    huge = outgoing(size=10_000)
    assert flight.takes(huge)
    flight.add(huge)
    assert not flight.takes(outgoing())
    flight.remove(huge)
    flight.add(outgoing())
    assert flight.takes(outgoing())
    flight.add(outgoing())
    assert not flight.takes(outgoing())


def test_who_was_refused_in_company_goes_alone() -> None:
    flight = Flight(100_000)
    suspect, other = outgoing(), outgoing()
    flight.add(suspect)
    flight.add(other)
    flight.keep_alone(suspect)
    assert flight.clear() == [suspect, other]
    flight.add(suspect)
    assert flight.is_alone(suspect)
    assert not flight.takes(other)
    flight.remove(suspect)
    flight.add(other)
    flight.keep_alone(suspect)
    assert not flight.takes(suspect)
