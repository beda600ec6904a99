"""What one source partition says of a window: its workloads' parts, one message to each target."""

from collections.abc import Iterable

import msgspec

from schemas import hot
from schemas.codec import encode
from schemas.topics import WINDOWS, partition_of, workload_key
from schemas.windows import WorkloadWindow
from streams.outputs import Output

SERIES_IN_A_MESSAGE = 2000
"""Series of a window in one message; about 800 KB."""

Window = tuple[int, int]
"""Its start and end, milliseconds since the epoch."""


def contributions(
    source: int, partitions: int, window: Window, parts: Iterable[tuple[str, WorkloadWindow]]
) -> list[Output]:
    """One message or more to each target partition, the parts in the given order.

    `parts` are (node key, its window of a workload).  A target without any gets an empty message:
    the watermark is news, too.
    """
    targets: list[dict[tuple[str | None, ...], list[WorkloadWindow]]]
    targets = [{} for _ in range(partitions)]
    for node, part in parts:
        place = (part.cluster, part.namespace, part.kind, part.name)
        targets[_target(node, part, partitions)].setdefault(place, []).append(part)
    return [
        message
        for target, grouped in enumerate(targets)
        for message in _messages(source, target, window, [merged(one) for one in grouped.values()])
    ]


def merged(parts: list[WorkloadWindow]) -> WorkloadWindow:
    """The windows of one workload from several places as one, series in the given order."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    starts = [part.started_at_ms for part in parts if part.started_at_ms is not None]
    graces = [g for part in parts if (g := part.starting_grace_seconds) is not None]
    living = [part for part in parts if part.series]
    return hot.WorkloadWindow(
        cluster=first.cluster,
        namespace=first.namespace,
        kind=first.kind,
        name=first.name,
        owner=next((part.owner for part in parts if part.owner), None),
        standby=bool(living) and all(part.standby for part in living),
        notebook=any(part.notebook for part in parts),
        started_at_ms=max(starts, default=None),
        starting_grace_seconds=max(graces, default=None),
        series=tuple(series for part in parts for series in part.series),
        ended=tuple(end for part in parts for end in part.ended),
    )


def in_parts(workloads: list[WorkloadWindow], most: int) -> list[list[WorkloadWindow]]:
    """The same windows in lists of at most `most` series; at least one list."""
    parts: list[list[WorkloadWindow]] = [[]]
    room = most
    for workload in workloads:
        rest = workload
        while len(rest.series) > room:
            head, tail = rest.series[:room], rest.series[room:]
            parts[-1].append(_with_series(rest, head, rest.ended))
            rest = _with_series(rest, tail, ())
            parts.append([])
            room = most
        parts[-1].append(rest)
        room -= len(rest.series)
    return parts


def _with_series(
    window: WorkloadWindow, series: tuple[object, ...], ended: tuple[object, ...]
) -> WorkloadWindow:
    return msgspec.structs.replace(window, series=series, ended=ended)  # type: ignore[type-var]


def _messages(
    source: int, target: int, window: Window, workloads: list[WorkloadWindow]
) -> list[Output]:
    start_ms, end_ms = window
    parts = in_parts(workloads, SERIES_IN_A_MESSAGE)
    return [
        Output(
            WINDOWS,
            target,
            b"%d" % target,
            encode(
                hot.WindowContribution(
                    source_partition=source,
                    target_partition=target,
                    start_ms=start_ms,
                    end_ms=end_ms,
                    watermark_ms=end_ms if number == len(parts) - 1 else start_ms,
                    part=number,
                    workloads=tuple(part),
                )
            ),
        )
        for number, part in enumerate(parts)
    ]


def _target(node: str, part: WorkloadWindow, partitions: int) -> int:
    """A workload's partition; a device without a pod goes to its node's."""
    if part.namespace is None or part.kind is None:
        return partition_of(node.encode(), partitions)
    key = workload_key(part.cluster, part.namespace, part.kind, part.name)
    return partition_of(key, partitions)
