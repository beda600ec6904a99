"""An alert on Kafka is a CloudEvents 1.0 event in binary mode: its attributes are headers.

Source: CloudEvents' Kafka protocol binding 1.0.2, section 3.2.
"""

from typing import TYPE_CHECKING
from urllib.parse import quote

from schemas.alerts import rfc3339

if TYPE_CHECKING:
    from schemas.alerts import AlertEvent

ALERT_TYPE = "gpuvigil.alert"
"""What stands in `ce_type` before the event's status, such as `gpuvigil.alert.firing`."""


def alert_headers(event: "AlertEvent") -> tuple[tuple[str, bytes], ...]:
    """Headers of an alert.  They hold event time and no host, as its body does.

    The id grows with the revision: who has seen it before may ignore the event.
    """
    attributes = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": f"{event.incident_id}/{event.revision}",
        "ce_source": f"/gpuvigil/clusters/{quote(event.cluster, safe='')}",
        "ce_type": f"{ALERT_TYPE}.{event.status}",
        "ce_time": rfc3339(event.updated_at),
    }
    return tuple((name, value.encode()) for name, value in attributes.items())
