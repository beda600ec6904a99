"""What the cluster knows about a workload and its pods' devices cannot tell."""

from typing import Literal

from schemas.wire import CapacityType, Count, EpochMs, Label, Message, Text


class CatalogEntry(Message):
    """A workload as its controller declares it.  Key: `cluster/namespace/kind/name`."""

    type: Literal["catalog_entry"] = "catalog_entry"
    version: Literal[1] = 1
    cluster: Text
    namespace: Text
    kind: Text
    name: Text
    observed_at_ms: EpochMs
    owner: Label | None = None
    """Who is told: the value of the configured owner label."""
    replicas_wanted: Count | None = None
    replicas_ready: Count | None = None
    standby: bool = False
    """Kept on purpose without load: judged for information only."""
    notebook: bool = False
    capacity_type: CapacityType | None = None
    """Which price holds for it; None where its pods may land on any."""
    price_class: Text | None = None
    """A name from the configured prices; None: the price by device model holds."""
