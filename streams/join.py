"""Which pods a node had when a sample was taken: pod events wait until telemetry refers to them."""

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from schemas.hot import struct_of
from schemas.pods import Pod as PodModel

if TYPE_CHECKING:
    from schemas.pods import Pod, PodEvent
    from schemas.wire import PodVersion
else:
    Pod = struct_of(PodModel)

Version = tuple[int, int]
"""(epoch, sequence) of a pod event."""

REMEMBERED_EPOCHS = 4


class PodState(Struct):
    """The pods of one node as of the last sample that was applied."""

    known: bool = False
    """False until a pod event was seen: then the allocation is unknown, not empty."""
    applied: dict[int, int] = {}
    """Last applied sequence of the newest few epochs."""
    pods: dict[str, Pod] = {}
    """By uid."""
    generation: int = 0
    """Grows with each change, so that what is derived from the pods can be kept."""


class PodJoin:
    """Holds back pod events until a sample's `pod_version` asks for them."""

    def __init__(self, state: PodState) -> None:
        self.state = state
        self.waiting: deque[tuple[int, PodEvent]] = deque()
        """Events that no sample has asked for yet, as (offset, event)."""

    def add(self, offset: int, event: "PodEvent") -> None:
        """Take an event in the order of the topic; one that was applied before is left out."""
        position = event.position
        if position.sequence > self.state.applied.get(position.epoch, -1):
            self.waiting.append((offset, event))

    def advance(self, version: "PodVersion | None", at_ms: int) -> bool:
        """Bring the pods to a sample's version, or to its time where it has none.

        False: events up to that version are missing, so the sample has to wait.
        """
        if version is None:
            while self.waiting and self.waiting[0][1].observed_at_ms <= at_ms:
                self._apply(self.waiting.popleft()[1])
            return True
        if self._has(version):
            return True
        if not self._arrived(version):
            return False
        while not self._has(version):
            self._apply(self.waiting.popleft()[1])
        return True

    def can_reach(self, version: "PodVersion") -> bool:
        """Whether `advance` would bring the pods to this version."""
        return self._has(version) or self._arrived(version)

    def give_up(self) -> None:
        """Apply what there is: an event that a sample refers to is lost for good."""
        while self.waiting:
            self._apply(self.waiting.popleft()[1])

    def _has(self, version: "PodVersion") -> bool:
        return self.state.applied.get(version.epoch, -1) >= version.sequence

    def _arrived(self, version: "PodVersion") -> bool:
        """Whether every event up to `version` waits here: a run without a hole."""
        last = self.state.applied.get(version.epoch, -1)
        for _, event in self.waiting:
            position = event.position
            if position.epoch == version.epoch:
                if position.sequence != last + 1:
                    return False
                last = position.sequence
                if last >= version.sequence:
                    return True
        return False

    def _apply(self, event: "PodEvent") -> None:
        state, position = self.state, event.position
        if position.sequence <= state.applied.get(position.epoch, -1):
            return
        if event.action == "snapshot":
            state.pods = {pod.uid: pod for pod in event.pods}
        elif event.action == "upsert":
            state.pods = state.pods | {pod.uid: pod for pod in event.pods}
        else:
            gone = {pod.uid for pod in event.pods}
            state.pods = {uid: pod for uid, pod in state.pods.items() if uid not in gone}
        state.applied[position.epoch] = position.sequence
        while len(state.applied) > REMEMBERED_EPOCHS:
            del state.applied[next(iter(state.applied))]
        state.known = True
        state.generation += 1
