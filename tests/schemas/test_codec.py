import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from schemas import hot
from schemas.alerts import Waste
from schemas.codec import MAX_MESSAGE_BYTES, MAX_REASON_CHARACTERS, DecodeError, Decoder, encode
from schemas.pods import PodEvent
from schemas.signals import Demand
from schemas.telemetry import NodeTelemetry
from schemas.topics import DEMAND, PODS, TELEMETRY
from tests.schemas.wire_texts import deep

HEAD = {"cluster": "c", "node": "n", "boot_id": "b", "sequence": 1, "observed_at_ms": 5}
SCRAPE: dict[str, object] = {**HEAD, "interval_seconds": 1.0, "devices": [{"uuid": "u"}]}
WORK: dict[str, object] = {"cluster": "c", "namespace": "ns", "kind": "Job", "name": "j"}
WAITS: dict[str, object] = {
    **WORK,
    "observed_at_ms": 5,
    "valid_until_ms": 6,
    "source": "kueue",
    "waiting": 2.0,
}
CASES: list[tuple[Decoder[Any], dict[str, object]]] = [
    (Decoder(NodeTelemetry, TELEMETRY), SCRAPE),
    (Decoder(Demand, DEMAND), WAITS),
]
both = pytest.mark.parametrize(("decoder", "sound"), CASES, ids=["hot", "cold"])


def text(content: dict[str, object], more: str = "") -> bytes:
    return (json.dumps(content)[:-1] + more + "}").encode()


def refusal(decoder: Decoder[Any], value: bytes | None, key: bytes | None = None) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decoder.decode(value, partition=3, offset=42, key=key)
    return caught.value


@both
def test_a_sound_message_is_read(decoder: Decoder[Any], sound: dict[str, object]) -> None:
    message = decoder.decode(text(sound), partition=0, offset=0)
    assert message.cluster == "c"
    assert decoder.decode(encode(message), partition=0, offset=0) == message


@both
def test_a_refusal_tells_where_and_why(decoder: Decoder[Any], sound: dict[str, object]) -> None:
    error = refusal(decoder, text(sound | {"cluster": 7}), key=b"some key")
    assert (error.topic, error.partition, error.offset) == (decoder.topic, 3, 42)
    assert error.key == b"some key"
    assert error.reason == "cluster: Input should be a valid string"
    assert str(error) == f"{decoder.topic}[3]@42: {error.reason}"


REFUSED: list[tuple[str, str]] = [
    (',"z":NaN', "no JSON"),
    (',"z":-Infinity', "no JSON"),
    (',"cluster":1e400', "cluster: Input should be a valid string"),
    (',"observed_at_ms":1e400', "observed_at_ms"),
    (',"observed_at_ms":1.0', "observed_at_ms: Input should be a valid integer"),
    (f',"z":{deep(100_000)}', "no JSON: recursion limit"),
    (f',"cluster":{deep(100_000)}', "no JSON: recursion limit"),
    (',"version":2', "version 2 is newer than 1, the newest that this release reads; upgrade"),
    (f',"version":{10**60}', "version (a huge number) is newer"),
    (',"version":0', "version: Input should be 1"),
    (',"version":"2"', "version: Input should be 1"),
    (',"type":"alert_event"', "the type is 'alert_event', this topic holds"),
    (',"type":null', "the type is None"),
    (",", "no JSON: trailing comma"),
    (r',"z":"\ud800"', "no JSON"),
]


@both
@pytest.mark.parametrize(("more", "reason"), REFUSED, ids=[more[:20] for more, _ in REFUSED])
def test_reasons(decoder: Decoder[Any], sound: dict[str, object], more: str, reason: str) -> None:
    assert refusal(decoder, text(sound, more)).reason.startswith(reason)


@both
def test_bytes_that_are_no_message(decoder: Decoder[Any], sound: dict[str, object]) -> None:
    whole = text(sound)
    for value in (
        b"",
        b"{",
        b"\xff\xfe",
        b"\x00" * 64,
        b"[]",
        b"null",
        b"7",
        whole[:-1],
        whole * 2,
    ):
        assert refusal(decoder, value).reason
    assert "tombstone" in refusal(decoder, None).reason
    assert "unicode" in refusal(decoder, whole[:-1] + b',"z":"\xff"}').reason


@both
def test_the_size_is_bounded(decoder: Decoder[Any], sound: dict[str, object]) -> None:
    whole = text(sound)
    assert decoder.decode(whole.ljust(MAX_MESSAGE_BYTES), partition=0, offset=0)
    reason = refusal(decoder, whole.ljust(MAX_MESSAGE_BYTES + 1)).reason
    assert reason == "the value has 8388609 bytes, the most is 8388608"


@both
@pytest.mark.parametrize("name", ["type", "cluster", "observed_at_ms", "a name\r\n" * 1000])
def test_a_reason_is_one_short_line_without_a_huge_echo(
    decoder: Decoder[Any], sound: dict[str, object], name: str
) -> None:
    reason = refusal(decoder, text(sound | {"cluster": {}, name: "\r\n\x1b[31m☠" * 100_000})).reason
    assert 0 < len(reason) <= MAX_REASON_CHARACTERS
    assert reason.isprintable()


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(value: bytes) -> None:
    for decoder, _ in CASES:
        refusal(decoder, value)


@pytest.mark.parametrize(
    ("model", "topic", "content", "key"),
    [
        (NodeTelemetry, TELEMETRY, SCRAPE, b"c/n"),
        (Demand, DEMAND, WAITS, b"c/ns/Job/j"),
    ],
)
def test_a_key_fits_its_content(
    model: type[BaseModel], topic: str, content: dict[str, object], key: bytes
) -> None:
    decoder = Decoder(model, topic)
    assert decoder.decode(text(content), partition=0, offset=0, key=key) is not None
    for other in (b"", b"c/m", b"C" + key[1:], key + b"/", b"\xff", b"x" * 100_000):
        reason = refusal(decoder, text(content), key=other).reason
        assert reason.startswith("the key is b")


def test_a_part_of_a_message_is_no_message() -> None:
    for part in (Waste, hot.SeriesEnd):
        with pytest.raises(TypeError, match="is no message"):
            Decoder(part, "topic")


def test_windows_have_no_key_to_fit() -> None:
    decoder = Decoder(hot.WindowContribution, "gpu.windows")
    content = '{"source_partition":1,"target_partition":2,"start_ms":0,"end_ms":1,"watermark_ms":1}'
    assert decoder.decode(content.encode(), partition=2, offset=0, key=b"any").watermark_ms == 1


def test_hot_messages_are_structs_whichever_class_was_given() -> None:
    value = text({"cluster": "c", "node": "n", "observed_at_ms": 5, "action": "snapshot"})
    value = value[:-1] + b',"position":{"epoch":1,"sequence":0}}'
    by_model = Decoder(PodEvent, PODS).decode(value, partition=0, offset=0)
    by_struct = Decoder(hot.PodEvent, PODS).decode(value, partition=0, offset=0)
    assert by_model == by_struct
    assert isinstance(by_model, msgspec.Struct)


def test_what_pydantic_reads_and_the_struct_does_not_is_still_a_struct() -> None:
    decoder, _ = CASES[0]
    odd = text({"sequence": "x", **{f"{k}": v for k, v in SCRAPE.items() if k != "sequence"}})
    twice = odd[:-1] + b',"sequence":1,"version":1.0}'
    assert decoder.decode(twice, partition=0, offset=0) == decoder.decode(
        text(SCRAPE), partition=0, offset=0
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_no_nan_gets_out(bad: float) -> None:
    assert encode(Waste.model_construct(gpu_hours=bad, cost=None)).startswith(b'{"gpu_hours":null')
    series: Any = hot.SeriesWindow
    raw = encode(
        series(node="n", device_uuid="u", coverage_seconds=1.0, interval_seconds=1.0,
               power_mean_watts=bad)
    )  # fmt: skip
    assert json.loads(raw)["power_mean_watts"] is None


def test_encoding_is_compact_and_the_same_for_struct_and_model() -> None:
    model = NodeTelemetry.model_validate_json(text(SCRAPE))
    struct = CASES[0][0].decode(text(SCRAPE), partition=0, offset=0)
    assert encode(model) == encode(struct) == encode(model)
    assert b" " not in encode(model)
