"""Alerts carry the attributes of CloudEvents 1.0 as headers."""

from pathlib import Path

import pytest

from schemas.alerts import AlertEvent
from schemas.cloud_events import alert_headers

GOLDEN = Path(__file__).parent / "golden" / "alert_event.v1.json"


@pytest.fixture
def event() -> AlertEvent:
    return AlertEvent.model_validate_json(GOLDEN.read_bytes())


def test_an_alert_is_a_cloud_event(event: AlertEvent) -> None:
    headers = dict(alert_headers(event))
    assert headers["content-type"] == b"application/json"
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_id"].decode() == f"{event.incident_id}/{event.revision}"
    assert headers["ce_type"].decode() == f"gpuvigil.alert.{event.status}"
    assert headers["ce_time"].endswith(b"Z")


def test_a_hostile_name_of_a_cluster_is_still_a_uri(event: AlertEvent) -> None:
    hostile = event.model_copy(update={"cluster": "a/../b c\r\nce_id: 1"})
    source = dict(alert_headers(hostile))["ce_source"]
    assert source == b"/gpuvigil/clusters/a%2F..%2Fb%20c%0D%0Ace_id%3A%201"
