from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from producers.recording import Recording, RecordingError
from schemas.telemetry import NodeTelemetry

if TYPE_CHECKING:
    from schemas.telemetry import DeviceSample

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
MIB = 2**20
SIX_O_CLOCK_MS = 1_788_242_400_000
HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
NAMES = "timestamp,index,utilization.gpu,memory.used,power.draw"

PLATO_COLUMNS = (
    "timestamp,utilization.gpu,utilization.memory,memory.used,memory.free,"
    "temperature.gpu,power.draw"
)

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared example data")

Log = Callable[..., Recording]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    def write(content: str | bytes, **options: str) -> Recording:
        path = tmp_path / "gpu-a.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return Recording(path, **options)

    return write


def row(second: int, index: int = 0, util: str = "7 %") -> str:
    return f"2026/09/01 06:00:{second:02}.000, {index}, {util}, 1949 MiB, 11.64 W\n"


def only_device(recording: Recording) -> "DeviceSample":
    ((device,),) = [message.devices for message in recording.messages()]
    return device


def times(recording: Recording) -> list[int]:
    return [message.observed_at_ms - SIX_O_CLOCK_MS for message in recording.messages()]


def test_a_row_becomes_a_message(log: Log) -> None:
    recording = log(
        "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], "
        "memory.total [MiB], memory.used [MiB], temperature.gpu, power.draw [W], "
        "power.limit [W], power.default_limit [W], clocks.sm [MHz]\n"
        "2026/09/01 06:00:00.000, 3, GPU-5, NVIDIA L40S, 7 %, 2 %, "
        "46068 MiB, 1949 MiB, 61, 11.64 W, 300.00 W, 350.00 W, 2520 MHz\n"
    )
    (message,) = recording.messages()
    assert NodeTelemetry.model_validate_json(msgspec.json.encode(message)).model_dump() == {
        **NodeTelemetry(
            cluster="local",
            node="gpu-a",
            boot_id="recording",
            sequence=0,
            observed_at_ms=SIX_O_CLOCK_MS,
            interval_seconds=1.0,
            clock="data",
        ).model_dump(),
        "devices": (
            {
                "uuid": "GPU-5",
                "index": 3,
                "model": "NVIDIA L40S",
                "parent_uuid": None,
                "mig_instance": None,
                "card_share": 1.0,
                "gpu_util_percent": 7.0,
                "gr_engine_active_percent": None,
                "sm_active_percent": None,
                "memory_controller_percent": 2.0,
                "dram_active_percent": None,
                "memory_used_bytes": 1949 * MIB,
                "memory_total_bytes": 46068 * MIB,
                "power_watts": 11.64,
                "power_limit_watts": 350.0,
                "temperature_celsius": 61.0,
                "pcie_bytes_per_second": None,
                "nvlink_bytes_per_second": None,
                "processes": (),
                "processes_complete": None,
            },
        ),
    }
    assert recording.skipped_rows == recording.unusable_values == Counter()


@pytest.mark.parametrize(
    ("heading", "cell"),
    [
        ("memory.used [MiB]", "1949 MiB"),
        ("memory.used [MiB]", "1949"),
        ("memory.used", "1949 MiB"),
        ("memory.used", "1949MiB"),
        ("memory.used", "1949"),
        ("Memory_Used (MB)", "1949"),
        ("MEMORY.USED", " 1949.0 mib "),
        ("memory.used [KiB]", "1995776"),
        ("memory.used [bytes]", str(1949 * MIB)),
        ("memory.used [GiB]", "1949 MiB"),
        ("memory.used", '"1949"'),
    ],
)
def test_memory_has_its_unit_in_the_header_the_cell_or_nowhere(
    log: Log, heading: str, cell: str
) -> None:
    assert only_device(log(f"timestamp,{heading}\n0,{cell}\n")).memory_used_bytes == 1949 * MIB


@pytest.mark.parametrize(
    ("heading", "cell", "watts"),
    [
        ("power.draw [W]", "11.64 W", 11.64),
        ("power.draw", "11.64", 11.64),
        ("power.draw", "11640 mW", 11.64),
        ("power.draw [mW]", "11640", 11.64),
        ("power.draw", "1.5e2", 150.0),
        ("power.draw.average [W]", "11.64 W", 11.64),
        ("power.draw.instant [W]", "11.64 W", 11.64),
    ],
)
def test_power(log: Log, heading: str, cell: str, watts: float) -> None:
    assert only_device(log(f"timestamp,{heading}\n0,{cell}\n")).power_watts == pytest.approx(watts)


@pytest.mark.parametrize(
    "cell",
    [
        "[N/A]",
        "[Unknown Error]",
        "[Not Supported]",
        "[GPU is lost]",
        "N/A",
        "-",
        "",
        "ERROR - FAILED TO CONVERT TO STRING",
    ],
)
def test_a_missing_value_is_none_and_no_fault(log: Log, cell: str) -> None:
    recording = log(f"timestamp,utilization.gpu,memory.used,power.draw\n0,{cell},5,{cell}\n")
    device = only_device(recording)
    assert (device.gpu_util_percent, device.power_watts) == (None, None)
    assert device.memory_used_bytes == 5 * MIB
    assert recording.unusable_values == Counter()


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("memory.used", "-5 MiB"),
        ("memory.used", "9223372036854775794"),
        ("memory.used", "5 pages"),
        ("utilization.gpu", "nan"),
        ("utilization.gpu", "101 %"),
        ("utilization.gpu", "1_0"),
        ("power.draw", "-1 W"),
        ("power.draw", "inf"),
        ("power.draw", "1e999 W"),
        ("power.draw", "abc"),
        ("index", "-1"),
        ("index", "0x0C"),
    ],
)
def test_an_impossible_value_is_none_and_counted(log: Log, name: str, cell: str) -> None:
    recording = log(
        f"timestamp,memory.free,utilization.memory,{name}\n0,1,3,{cell}\n1,1,3,{cell}\n"
    )
    messages = list(recording.messages())
    for device in (device for message in messages for device in message.devices):
        assert device.memory_used_bytes is device.gpu_util_percent is device.power_watts is None
        assert (device.index, device.memory_controller_percent) == (0, 3)
    assert recording.unusable_values == Counter({name: len(messages)})


def test_an_impossible_value_counts_once_in_each_reading(log: Log) -> None:
    recording = log("timestamp,memory.used\n0,-1\n1,-1\n2,5\n")
    for _ in range(2):
        assert [m.devices[0].memory_used_bytes for m in recording.messages()] == [
            None,
            None,
            5 * MIB,
        ]
        assert recording.unusable_values == Counter({"memory.used": 2})


@pytest.mark.parametrize(
    ("cell", "after_ms"),
    [
        ("2026/09/01 06:00:00.000", 0),
        ("2026/09/01 06:00:00.123", 123),
        ("2026-09-01 06:00:00", 0),
        ("2026-09-01T06:00:00.5", 500),
        ("2026-09-01T06:00:00Z", 0),
        ("2026-09-01T08:00:00+02:00", 0),
        ("1788242400", 0),
        ("1788242400.25", 250),
        ("1788242400250", 250),
        ("1788242400250000", 250),
        ("1788242400250000000", 250),
    ],
)
def test_times(log: Log, cell: str, after_ms: int) -> None:
    assert times(log(f"utilization.gpu,timestamp\n1,{cell}\n")) == [after_ms]


@pytest.mark.parametrize(
    "cell", ["", "[N/A]", "yesterday", "2026/13/01 06:00:00", "-5", "9" * 500, "nan", "0001-01-01"]
)
def test_a_row_without_a_time_is_skipped_and_counted(log: Log, cell: str) -> None:
    recording = log(f"timestamp,utilization.gpu\n1788242400,1\n{cell},2\n1788242401,3\n")
    assert times(recording) == [0, 1000]
    assert recording.skipped_rows == Counter({"no readable time": 1})


def test_a_file_without_header_takes_given_columns(log: Log) -> None:
    rows = row(0) + row(1)
    expected = list(log(HEADER + rows).messages())
    assert list(log(rows, columns=NAMES).messages()) == expected
    assert list(log(rows, columns=NAMES.replace(",", " , ")).messages()) == expected
    assert expected[0].devices[0].power_watts == 11.64


def test_given_columns_may_be_a_sequence_and_override_the_header(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("timestamp, when, how.much\n5, 1788242400, 9\n", encoding="utf-8")
    recording = Recording(path, columns=["", "timestamp", "utilization.gpu"])
    (message,) = recording.messages()
    assert (message.observed_at_ms, message.devices[0].gpu_util_percent) == (SIX_O_CLOCK_MS, 9)
    assert recording.skipped_rows.total() == 1


def test_total_is_summed_where_the_log_has_only_the_parts(log: Log) -> None:
    parts = "timestamp,memory.used,memory.free"
    assert only_device(log(f"{parts}\n0,2,20146\n")).memory_total_bytes == 20148 * MIB
    reserved = only_device(log(f"{parts},memory.reserved\n0,2,20146,400\n"))
    assert reserved.memory_total_bytes == 20548 * MIB
    assert only_device(log(f"{parts},memory.total\n0,2,20146,24576\n")).memory_total_bytes == (
        24576 * MIB
    )
    assert only_device(log(f"{parts}\n0,2,[N/A]\n")).memory_total_bytes is None


def test_the_next_column_stands_in_for_a_missing_power(log: Log) -> None:
    recording = log(
        "timestamp,power.draw.instant,power.draw.average,power.draw\n0,39,38,37\n1,39,[N/A],[N/A]\n"
    )
    assert [m.devices[0].power_watts for m in recording.messages()] == [37, 39]


def test_rows_of_several_gpus_form_one_scrape(log: Log) -> None:
    recording = log(HEADER + "".join(row(second, gpu) for second in range(3) for gpu in range(4)))
    messages = list(recording.messages())
    assert times(recording) == [0, 1000, 2000]
    assert [m.sequence for m in messages] == [0, 1, 2]
    for message in messages:
        assert [d.uuid for d in message.devices] == [f"gpu-a/{index}" for index in range(4)]
        assert [d.index for d in message.devices] == [0, 1, 2, 3]


def test_a_scrape_ends_where_a_device_repeats(log: Log) -> None:
    recording = log(
        "timestamp,uuid,utilization.gpu\n0.000,GPU-a,1\n0.007,GPU-b,2\n"
        "1.000,GPU-a,3\n1.007,GPU-b,4\n2.000,GPU-a,5\n9.000,GPU-b,6\n"
    )
    scrapes = [[(d.uuid, d.gpu_util_percent) for d in m.devices] for m in recording.messages()]
    assert scrapes == [
        [("GPU-a", 1), ("GPU-b", 2)],
        [("GPU-a", 3), ("GPU-b", 4)],
        [("GPU-a", 5)],
        [("GPU-b", 6)],  # a lost GPU's next row is not part of a scrape seven seconds before
    ]


def test_devices_without_a_name_are_told_apart_by_their_place(log: Log) -> None:
    recording = log("timestamp,utilization.gpu\n0,1\n0,2\n1,3\n1,4\n")
    scrapes = [[(d.uuid, d.gpu_util_percent) for d in m.devices] for m in recording.messages()]
    assert scrapes == [[("gpu-a/0", 1), ("gpu-a/1", 2)], [("gpu-a/0", 3), ("gpu-a/1", 4)]]


@pytest.mark.parametrize(
    ("names", "cells", "uuid"),
    [
        ("uuid,index,pci.bus_id", "GPU-x,1,0:A", "GPU-x"),
        ("gpu_uuid,index,pci.bus_id", "GPU-x,1,0:A", "GPU-x"),
        ("uuid,index,pci.bus_id", "[N/A],1,0:A", "gpu-a/1"),
        ("index,pci.bus_id", "1,0:A", "gpu-a/1"),
        ("pci.bus_id", "00000000:0C:00.0", "gpu-a/00000000:0C:00.0"),
        ("name", "Tesla T4", "gpu-a/0"),
    ],
)
def test_a_device_is_named_by_uuid_else_index_else_bus(
    log: Log, names: str, cells: str, uuid: str
) -> None:
    assert only_device(log(f"timestamp,utilization.gpu,{names}\n0,1,{cells}\n")).uuid == uuid


def test_broken_rows_are_skipped_and_counted(log: Log) -> None:
    parts = [
        row(0),
        "2026/09/01 06:0\n",
        row(1),
        "Unable to determine the device handle\n",
        "\n   \n",
        row(2),
        '"' + row(3),
        row(4),
        "x" * 200_000 + "\n",
        row(5),
        "2026/09/01 06:00:0",
    ]
    recording = log(HEADER + "".join(parts))
    assert times(recording) == [0, 1000, 2000, 4000, 5000]
    assert recording.skipped_rows == Counter({"wrong number of columns": 4, "line too long": 1})


def test_a_last_line_cut_within_its_last_cell_is_skipped(log: Log) -> None:
    recording = log(HEADER + row(0) + row(1).removesuffix("4 W\n"))
    assert times(recording) == [0]
    assert recording.skipped_rows == Counter({"cut off at the end of the file": 1})


@pytest.mark.parametrize("first", ["", row(0)])
def test_a_whole_last_line_needs_no_line_end(log: Log, first: str) -> None:
    recording = log(HEADER + first + row(1).removesuffix("\n"))
    assert times(recording)[-1] == 1000
    assert recording.skipped_rows == Counter()


def test_headers_amid_the_rows(log: Log) -> None:
    recording = log(
        HEADER + row(0) + HEADER + row(1) + "timestamp, memory.used [GiB]\n1788242402, 2\n"
    )
    messages = list(recording.messages())
    assert [m.devices[0].memory_used_bytes for m in messages] == [1949 * MIB, 1949 * MIB, 2 * 2**30]
    assert times(recording) == [0, 1000, 2000]
    assert recording.skipped_rows == Counter({"header amid the rows": 2})


def test_lines_before_the_header_are_skipped_and_counted(log: Log) -> None:
    recording = log("$ ./watch.sh\nindex\nstarting\n" + HEADER + row(0))
    assert times(recording) == [0]
    assert recording.skipped_rows == Counter({"before the header": 3})


@pytest.mark.parametrize(
    "content",
    [
        (HEADER + row(0) + row(1)).encode("utf-8-sig"),
        (HEADER + row(0) + row(1)).encode("utf-16"),
        (HEADER + row(0) + row(1)).replace("\n", "\r\n").encode(),
        (HEADER + row(0) + row(1)).replace("\n", ",\n").encode(),
        (HEADER + row(0)).encode() + b"\xff\xfe\x00\x80\n" + row(1).encode(),
    ],
)
def test_bytes_of_any_editor(log: Log, content: bytes) -> None:
    recording = log(content)
    assert times(recording) == [0, 1000]


def test_bytes_that_are_no_text_are_replaced(log: Log) -> None:
    recording = log(b"timestamp,name,temperature.gpu [\xb0C],utilization.gpu\n0,Ti\xe9,27,1\n")
    device = only_device(recording)
    assert (device.model, device.temperature_celsius) == ("Ti\ufffd", 27)


def test_a_time_that_steps_back_is_passed_on(log: Log) -> None:
    assert times(log(HEADER + row(9) + row(3) + row(10))) == [9000, 3000, 10_000]


@pytest.mark.parametrize(
    ("stamps", "seconds"),
    [
        (["0"], 1.0),
        (["0", "0.01", "0.02"], 0.1),
        (["0", "5.008", "10.016", "999"], 5.008),
        (["0", "9000"], 3600.0),
        ([str(5 * n) for n in range(60)] + [str(295 + n) for n in range(600)], 5.0),
    ],
)
def test_interval(log: Log, stamps: list[str], seconds: float) -> None:
    recording = log("timestamp,utilization.gpu\n" + "".join(f"{stamp},1\n" for stamp in stamps))
    assert {m.interval_seconds for m in recording.messages()} == {seconds}


def test_interval_is_that_of_a_device_where_gpus_take_turns(log: Log) -> None:
    recording = log(
        "timestamp,uuid,utilization.gpu\n" + "".join(f"{30 * n},GPU-{n % 2},1\n" for n in range(20))
    )
    assert [m.interval_seconds for m in recording.messages()] == [60.0] * 20


@pytest.mark.parametrize("start_at", [0, 1, 49, 50, 51, 119, 120, 500])
def test_a_reading_may_start_later(log: Log, start_at: int) -> None:
    recording = log("timestamp,utilization.gpu\n" + "".join(f"{n},{n % 100}\n" for n in range(120)))
    assert list(recording.messages(start_at)) == list(recording.messages())[start_at:]


def test_more_different_cells_than_a_column_keeps(log: Log) -> None:
    rows = "".join(f"{n},GPU-{n},{n}\n" for n in range(10_000))
    recording = log("timestamp,uuid,memory.used\n" + rows)
    devices = [device for message in recording.messages() for device in message.devices]
    assert [(d.uuid, d.memory_used_bytes) for d in devices] == [
        (f"GPU-{n}", n * MIB) for n in range(10_000)
    ]


def test_cluster_and_node_are_as_given(log: Log) -> None:
    (message,) = log(HEADER + row(0), cluster="lab", node="node-7").messages()
    assert (message.cluster, message.node) == ("lab", "node-7")
    assert message.devices[0].uuid == "gpu-a/0"


def test_rows_are_read_as_they_are_asked_for(log: Log) -> None:
    recording = log(HEADER + row(0) * 200 + "broken\n")
    messages = recording.messages()
    next(messages)
    assert recording.skipped_rows == Counter()
    assert sum(1 for _ in messages) == 199
    assert recording.skipped_rows.total() == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no lines"),
        ("\n \n", "holds no lines"),
        (row(0), "no header; the first line is '2026/09/01 06:00:00.000, 0, 7 %, 1949 MiB"),
        (row(0), "--columns timestamp,utilization.gpu,"),
        ("a,b,c\n1,2,3\n", "no header"),
        (",worker,gpu,time,batch_time_norm\n0,0,20,1,691\n", "no utilization.gpu"),
        ("index, utilization.gpu [%]\n0, 5 %\n", "no timestamp column"),
        ("timestamp, index, name\n0, 0, T4\n", "no utilization.gpu, memory.used or power.draw"),
        ("timestamp, memory.used [pages]\n0, 5\n", "unknown unit [pages] of memory.used"),
    ],
)
def test_a_file_of_which_nothing_can_be_made_is_an_error(
    log: Log, content: str, words: str
) -> None:
    with pytest.raises(RecordingError) as caught:
        log(content)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [("", "there is only a header"), ("yesterday,1\nx\n", "1 no readable time, 1 wrong number")],
)
def test_a_file_without_a_readable_row_is_an_error(log: Log, rows: str, words: str) -> None:
    recording = log("timestamp,utilization.gpu\n" + rows)
    with pytest.raises(RecordingError, match=words):
        list(recording.messages())


def test_columns_of_another_number_are_an_error(log: Log) -> None:
    with pytest.raises(RecordingError, match="2 columns named, but 5 found"):
        log(row(0), columns="timestamp,utilization.gpu")


def test_paths_that_are_no_log_are_errors(tmp_path: Path, log: Log) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        Recording(tmp_path / "nowhere.csv")
    with pytest.raises(RecordingError, match="not a regular file"):
        Recording(tmp_path)
    recording = log(HEADER + row(0))
    recording.path.unlink()
    with pytest.raises(RecordingError, match="No such file"):
        list(recording.messages())


def test_a_name_too_long_for_the_wire_is_an_error(log: Log) -> None:
    with pytest.raises(RecordingError, match="longer than 512"):
        log(HEADER + row(0), node="n" * 513)


FRAGMENTS = [HEADER, row(0), row(1, 1), "timestamp,memory.used\n", '"', "\ufeff", "5,6\n"]
LINES = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(FRAGMENTS).map(str.encode),
    st.text(alphabet='0123456789,-./: "\n\r[]%eWMiBnaN', max_size=60).map(str.encode),
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    parts=st.lists(LINES, max_size=12),
    mark=st.sampled_from([b"", HEADER.encode(), b"\xff\xfe", b"\xef\xbb\xbf"]),
    columns=st.sampled_from([None, NAMES, "timestamp", "timestamp,utilization.gpu", ""]),
)
@example(parts=[b'"'], mark=b"", columns=None)
@example(parts=[b"\x00,5"], mark=b"", columns="timestamp,utilization.gpu")
@example(parts=[b"\xd8"], mark=b"\xff\xfe", columns=None)
def test_any_bytes_give_valid_messages_or_a_recording_error(
    tmp_path: Path, parts: list[bytes], mark: bytes, columns: str | None
) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(mark + b"".join(parts))
    try:
        for message in Recording(path, columns=columns).messages():
            NodeTelemetry.model_validate_json(msgspec.json.encode(message))
    except RecordingError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either way is right


@needs_shared
@pytest.mark.parametrize(
    ("name", "columns", "messages", "seconds", "skipped"),
    [
        ("miris-gpu_log.csv", None, 107, 1.0, 0),
        ("rectified-point-flow-gpu_usage.csv", None, 90, 60.0, 0),
        (
            "plato-gpu_log.csv",
            PLATO_COLUMNS,
            1923,
            5.0,
            0,
        ),
    ],
)
def test_logs_of_others(
    name: str, columns: str | None, messages: int, seconds: float, skipped: int
) -> None:
    recording = Recording(SHARED / "traces" / name, columns=columns)
    read = list(recording.messages())
    assert len(read) == messages
    assert read[0].interval_seconds == pytest.approx(seconds, rel=0.01)
    assert recording.skipped_rows.total() == skipped
    assert recording.unusable_values == Counter()
    for message in read:
        (device,) = message.devices
        assert None not in (device.gpu_util_percent, device.memory_used_bytes)
        assert device.memory_total_bytes is not None


@needs_shared
@pytest.mark.parametrize("name", ["job_2_norm.csv", "job_3_norm.csv"])
def test_tables_of_something_else_are_refused(name: str) -> None:
    with pytest.raises(RecordingError, match=r"no utilization\.gpu"):
        Recording(SHARED / "traces" / name)


def captures() -> list[Path]:
    return sorted((SHARED / "nvidia-smi").glob("*.txt")) if SHARED.is_dir() else []


@needs_shared
@pytest.mark.parametrize("path", captures(), ids=lambda path: path.stem)
def test_captures_of_every_column(tmp_path: Path, path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if line.startswith("# $ nvidia-smi --query-gpu=")]
    assert len(starts) == 2
    # The header and one row follow a line of hashes; the second block is one appended to the first.
    block = tmp_path / "all-columns.csv"
    block.write_text("".join("".join(lines[n + 2 : n + 4]) for n in starts), encoding="utf-8")
    recording = Recording(block)
    messages = list(recording.messages())
    assert recording.skipped_rows == Counter({"header amid the rows": 1})
    assert recording.unusable_values == Counter()
    assert len(messages) == 2
    for message in messages:
        (device,) = message.devices
        assert device.uuid == "GPU-00000000-0000-0000-0000-000000000000"
        assert device.model is not None
        assert device.model.startswith("NVIDIA")
        assert (device.gpu_util_percent is None) == ("mig" in path.stem)
        assert None not in (
            device.memory_used_bytes,
            device.memory_total_bytes,
            device.power_watts,
            device.power_limit_watts,
            device.temperature_celsius,
        )
