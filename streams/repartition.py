"""The states of an installation as another number of partitions would have them.

What is known of a node, a workload or an alert goes with its key.  What a partition itself knew
begins anew, at a time before which everything has been judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from schemas import hot
from schemas.topics import partition_of
from streams.node import NodeState
from streams.node_windows import Ended
from streams.stage_one import PARTITION_KEY, PartitionState
from streams.stage_two import StageTwoState, WorkloadState
from streams.states import checked_version

if TYPE_CHECKING:
    from schemas.windows import EndReason
    from streams.holders import WorkloadKey

P = TypeVar("P", PartitionState, StageTwoState)

Dumped = Sequence[Mapping[bytes, bytes]]
"""Of each partition of a stage the dumped states by key."""


class Moved(NamedTuple):
    """States of both stages for the new partitions, and what became of them."""

    nodes: list[dict[bytes, bytes]]
    workloads: list[dict[bytes, bytes]]
    node_count: int
    workload_count: int
    open_incidents: int
    left: list[str]
    """Devices without a pod of which nobody knows on which node they are: not moved."""


def moved(nodes: Dumped, workloads: Dumped, partitions: int) -> Moved:
    """Move every key to its partition among `partitions`.

    Raises NewerStateError for a state of a later release.
    """
    mover = _Mover(partitions)
    for states in nodes:
        mover.take_nodes(states)
    for states in workloads:
        mover.take_workloads(states)
    return mover.moved()


class _Mover:
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._nodes: dict[bytes, NodeState] = {}
        self._marked_ms: list[int | None] = [None] * partitions
        self._judged_ms = 0
        self._workloads: list[dict[bytes, bytes]] = [{} for _ in range(partitions)]
        self._open = 0
        self._left: list[str] = []

    def take_nodes(self, states: Mapping[bytes, bytes]) -> None:
        """Take the states of a partition of stage one; all of them before those of stage two."""
        marked_ms = _partition(states, PartitionState).marked_ms
        for key, value in _keys(states):
            checked_version(key, value, NodeState.VERSION)
            self._nodes[key] = msgspec.json.decode(value, type=NodeState)
            place = self._place(key)
            before = self._marked_ms[place]
            # A finished window that a node still has was not handed on by its old partition.
            self._marked_ms[place] = marked_ms if before is None else min(before, marked_ms)

    def take_workloads(self, states: Mapping[bytes, bytes]) -> None:
        """Take the states of a partition of stage two."""
        judged_ms = _partition(states, StageTwoState).judged_ms
        self._judged_ms = max(self._judged_ms, judged_ms)
        for key, value in _keys(states):
            checked_version(key, value, WorkloadState.VERSION)
            state = msgspec.json.decode(value, type=WorkloadState)
            name = key.decode()
            placed_by = self._device_node(name, state) if _is_device(name) else key
            if placed_by is None:
                self._left.append(name)
                continue
            self._workloads[self._place(placed_by)][key] = value
            self._open += state.open_incidents
            self._tell_ends_again(name, state)

    def moved(self) -> Moved:
        """Everything that was taken."""
        nodes: list[dict[bytes, bytes]] = [{} for _ in range(self._partitions)]
        for key, node in self._nodes.items():
            nodes[self._place(key)][key] = msgspec.json.encode(node)
        for place, held in enumerate(nodes):
            states = [self._nodes[key] for key in held]
            held[PARTITION_KEY] = msgspec.json.encode(
                PartitionState(
                    marked_ms=self._marked_ms[place] or 0,
                    now_ms=max((node.seen_ms for node in states), default=0),
                    host_clock=any(node.clock.skews_ms for node in states),
                )
            )
        count = sum(map(len, self._workloads))
        # Nothing is judged twice: what was not judged everywhere counts as judged.
        fresh = msgspec.json.encode(StageTwoState(judged_ms=self._judged_ms))
        workloads = [held | {PARTITION_KEY: fresh} for held in self._workloads]
        return Moved(nodes, workloads, len(self._nodes), count, self._open, self._left)

    def _place(self, key: bytes) -> int:
        return partition_of(key, self._partitions)

    def _device_node(self, name: str, state: WorkloadState) -> bytes | None:
        """The key of the node whose device this is."""
        cluster, _, uuid = name.partition("//")
        for node in state.live.values():
            return f"{cluster}/{node}".encode()
        for key, known in self._nodes.items():
            if known.cluster == cluster and uuid in known.windows.uuids:
                return key
        return None

    def _tell_ends_again(self, name: str, state: WorkloadState) -> None:
        """The word that a series ended may lie in a window that is not carried over."""
        for series, node_name in state.live.items():
            node = self._node(name, node_name)
            uuid, _, pod = series.partition("|")
            key = series if pod else uuid
            if node is None or key in node.windows.live or _is_told(node, uuid, pod):
                continue
            end = hot.SeriesEnd(
                node=node_name,
                device_uuid=uuid,
                pod_uid=pod or None,
                reason=_reason(node, pod),
            )
            node.windows.ended.append(Ended(_workload_key(name, node.cluster), end))

    def _node(self, name: str, node: str) -> NodeState | None:
        """The node of a workload's series; both are of one cluster."""
        places = (i for i, character in enumerate(name) if character == "/")
        keys = (f"{name[:place]}/{node}".encode() for place in places)
        return next((self._nodes[key] for key in keys if key in self._nodes), None)


def _partition(states: Mapping[bytes, bytes], kind: type[P]) -> P:
    """What a partition knew itself; nothing, where it was never saved."""
    value = states.get(PARTITION_KEY)
    if value is None:
        return kind()
    checked_version(PARTITION_KEY, value, kind.VERSION)
    return msgspec.json.decode(value, type=kind)


def _keys(states: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    return ((key, value) for key, value in states.items() if key != PARTITION_KEY)


def _is_device(name: str) -> bool:
    """Whether a workload is a device whose pods are not known: it has no namespace."""
    return "//" in name


def _workload_key(name: str, cluster: str) -> "WorkloadKey":
    namespace, _, rest = name.removeprefix(f"{cluster}/").partition("/")
    if not namespace:
        return None, None, rest
    kind, _, workload = rest.partition("/")
    return namespace, kind, workload


def _is_told(node: NodeState, uuid: str, pod: str) -> bool:
    """Whether the node is about to say that this series has ended."""
    return any(
        (one.end.device_uuid, one.end.pod_uid or "") == (uuid, pod) for one in node.windows.ended
    )


def _reason(node: NodeState, pod: str) -> "EndReason":
    if node.gone:
        return "node silent"
    return "pod deleted" if pod and pod not in node.pods.pods else "not allocated"
