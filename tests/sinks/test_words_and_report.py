"""What people read: right numbers, unknown said as such, and nothing that a name can smuggle in."""

import io
import json

from rich.console import Console

from schemas.alerts import AlertEvent, Subject, Waste, moment
from schemas.windows import SeriesWindow, WindowContribution, WorkloadWindow
from sinks.jsonlines import AlertLines
from sinks.live import LiveTable, progress_line
from sinks.report import Report
from sinks.words import alert_words, money, subject_words

HOSTILE = "evil\x1b[2J[bold red]\r\n\u202e"
AT_MS = 1_790_000_000_000


def event(
    revision: int = 1,
    *,
    status: str = "firing",
    incident: str = "one",
    cost: float | None = 6.0,
    name: str = "Job/train",
) -> AlertEvent:
    return AlertEvent.model_validate(
        {
            "cluster": "c",
            "detector": "under_use",
            "incident_id": incident,
            "revision": revision,
            "valid_until": moment(AT_MS),
            "kind": "idle",
            "status": status,
            "tier": "ticket",
            "quality": "exact",
            "subject": Subject(cluster="c", namespace="team", workload=name),
            "onset": moment(AT_MS),
            "opened_at": moment(AT_MS),
            "updated_at": moment(AT_MS),
            "summary": f"{name} does nothing",
            "evidence": {"use_mean_percent": 0.5, "power_watts": None},
            "waste": Waste(gpu_hours=2.0 * revision, cost=cost, currency="USD"),
            "parameters": {},
        }
    )


def contribution(name: str = "train") -> WindowContribution:
    series = SeriesWindow(
        node="n",
        device_uuid="GPU-1",
        pod=name,
        pod_uid="u",
        namespace="team",
        coverage_seconds=10.0,
        interval_seconds=1.0,
        card_share=0.5,
        use_mean_percent=None,
    )
    workload = WorkloadWindow(
        cluster="c", namespace="team", kind="Job", name=name, series=(series,) * 36
    )
    return WindowContribution(
        source_partition=0,
        target_partition=0,
        start_ms=AT_MS,
        end_ms=AT_MS + 10_000,
        watermark_ms=AT_MS,
        workloads=(workload,),
    )


def printed(*renderables: object) -> str:
    out = io.StringIO()
    console = Console(file=out, width=120, height=40)
    for one in renderables:
        console.print(one)
    return out.getvalue()


def test_a_line_is_one_event() -> None:
    out = io.StringIO()
    AlertLines(out).write(event(name=HOSTILE))
    (line,) = out.getvalue().splitlines()
    assert line.isascii()
    assert json.loads(line)["subject"]["workload"] == HOSTILE
    assert json.loads(line)["onset"] == "2026-09-21T14:13:20.000Z"


def test_the_newest_revision_counts_once() -> None:
    report = Report()
    for one in (event(1), event(3, status="resolved"), event(2)):
        report.take_alert(one)
    assert report.by_kind() == {"idle": {"open": 0, "resolved": 1}}
    assert report.namespaces()[0]["wasted_gpu_hours"] == 6.0


def test_a_missing_price_makes_the_cost_unknown() -> None:
    report = Report()
    report.take_alert(event(incident="one", cost=3.0))
    report.take_alert(event(incident="two", cost=None))
    report.take_windows(contribution())
    assert report.namespaces()[0]["cost"] is None
    assert report.namespaces()[0]["observed_gpu_hours"] == 0.05
    assert "unknown" in printed(*report.render())
    assert money(0.0, "USD") == "0.00 USD"


def test_names_cannot_move_the_cursor_or_colour_the_text() -> None:
    words = alert_words(event(name=HOSTILE)) + subject_words(event(name=HOSTILE).subject)
    assert "\x1b" not in words
    assert "\u202e" not in words
    report = Report()
    report.take_alert(event(name=HOSTILE))
    live = LiveTable(Console(width=120, height=40), report)
    live.take_windows(contribution(HOSTILE))
    shown = printed(live.render())
    assert "\x1b[2J" not in shown
    assert "[bold red]" in shown


def test_an_unknown_use_is_a_question_mark() -> None:
    live = LiveTable(Console(width=120, height=40), Report())
    live.take_windows(contribution())
    assert "?" in printed(live.render())
    assert "waiting for data" in progress_line(None, 0, 0.0, "0 %")
