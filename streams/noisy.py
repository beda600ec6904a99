"""Who takes a shared device from whom: a victim's deficit and an aggressor's gain, by CUSUM.

A deficit alone proves nothing: a program does less when it has less to do.  It is somebody's doing
only where the device is full, was not always so, and another pod has gained what the victim lost.
"""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec import Struct, field

from streams.pod_share import OpenBlame, PodShare

if TYPE_CHECKING:
    from schemas.alerts import AlertKind
    from schemas.parameters import NoisyParameters
    from streams.device_windows import DeviceWindow, PodUse

HIGHEST_SCORE = 2.0
"""The CUSUM stops at this many times what opens, so that a long trouble ends as fast as a short."""
FULL_WINDOW_PERCENT = 99.0
"""Use of one window from which the device was full in it, whatever it was on average."""


class ContentionState(Struct, omit_defaults=True):
    """All that is remembered of a shared device."""

    VERSION: ClassVar[int] = 1

    measure: str = ""
    seen_seconds: float = 0.0
    usual_percent: float = 0.0
    """Mean use of the device over half an hour."""
    recent_percent: float = 0.0
    pods: dict[str, PodShare] = field(default_factory=dict)
    """By uid."""
    not_observable_windows: int = 0


class Blame(NamedTuple):
    """A victim, and who has what it lost."""

    kind: "AlertKind"
    victim: str
    """The pod's uid; so for the aggressors."""
    aggressors: tuple[str, ...]
    onset_ms: int


class Contention:
    """The detector of one shared device.  Feed it every window in order."""

    name = "noisy"

    def __init__(self, parameters: "NoisyParameters", state: ContentionState | None = None) -> None:
        self.state = state if state is not None else ContentionState()
        self._parameters = parameters

    def update(self, window: "DeviceWindow", start_ms: int, end_ms: int) -> tuple[Blame, ...]:
        """The blames that are open after this window, in the order of the victims' uids."""
        del end_ms
        state, seconds = self.state, window.coverage_seconds
        if seconds <= 0:
            return self._open()
        if window.interval_seconds > self._parameters.longest_interval:
            state.not_observable_windows += 1
            return self._open()
        self._note_measure(window.measure)
        self._note_pods(window, start_ms)
        self._see(window, seconds)
        held_down = self._judge(window, start_ms, seconds)
        self._learn(window, seconds, held_down=held_down)
        return self._open()

    def _open(self) -> tuple[Blame, ...]:
        return tuple(
            Blame(
                "noisy_neighbour" if share.open.over else "crowded",
                uid,
                tuple(share.open.aggressors),
                share.open.onset_ms,
            )
            for uid, share in self.state.pods.items()
            if share.open
        )

    def _note_measure(self, measure: str | None) -> None:
        """Figures of different measures are never compared: a change begins anew."""
        name = measure or self.state.measure
        if name == self.state.measure:
            return
        if self.state.measure:
            unobserved = self.state.not_observable_windows
            self.state = ContentionState(not_observable_windows=unobserved)
        self.state.measure = name

    def _note_pods(self, window: "DeviceWindow", start_ms: int) -> None:
        """Who came and who went.  A pod that comes finds its neighbours as they are just now."""
        known = self.state.pods
        there = {pod.uid for pod in window.pods}
        if there == known.keys():
            return
        joined = there - known.keys()
        first = not self.state.seen_seconds
        if joined and not first:
            for share in known.values():
                if not (share.deficit_seconds or share.open) and share.seen_seconds:
                    share.rebase()
        fresh = {uid: PodShare(joined_ms=0 if first else start_ms) for uid in joined}
        shares = known | fresh
        self.state.pods = {uid: shares[uid] for uid in sorted(there)}

    def _see(self, window: "DeviceWindow", seconds: float) -> None:
        state, parameters = self.state, self._parameters
        util = window.util_percent
        if util is not None:
            if not state.seen_seconds:
                state.usual_percent = state.recent_percent = util
            weight = min(1.0, seconds / parameters.recent_over)
            state.recent_percent += weight * (util - state.recent_percent)
            state.seen_seconds += seconds
        for pod in window.pods:
            if pod.use_percent is not None:
                state.pods[pod.uid].see(pod.use_percent, seconds, parameters)

    def _judge(self, window: "DeviceWindow", start_ms: int, seconds: float) -> bool:
        """Count the deficits.  Returns whether somebody is held down in a way that counts."""
        full = self._is_full(window)
        counted = False
        hogs = self._hogs(window, start_ms)
        for pod in window.pods:
            share = self.state.pods[pod.uid]
            takers = self._takers(window, pod, share, start_ms) if full else []
            before = share.deficit_seconds + share.memory_seconds
            self._count_deficit(share, pod, takers, full=full, seconds=seconds)
            own_hogs = [hog for hog in hogs if hog.uid != pod.uid]
            self._count_memory(share, pod, own_hogs, seconds)
            if not before and share.deficit_seconds + share.memory_seconds:
                share.onset_ms = start_ms
            self._settle(share, takers, own_hogs, seconds)
            counted = counted or bool(takers)
        return counted

    def _is_full(self, window: "DeviceWindow") -> bool:
        """Whether the pods compete in this window."""
        util = window.util_percent
        return util is not None and (
            self.state.recent_percent >= self._parameters.full_percent
            or util >= FULL_WINDOW_PERCENT
        )

    def _takers(
        self, window: "DeviceWindow", victim: "PodUse", share: PodShare, now_ms: int
    ) -> "list[PodUse]":
        """Who has what the victim lost, the one that gained most first; empty: nobody has."""
        parameters = self._parameters
        if victim.use_percent is None or not share.can_be_victim(parameters):
            return []
        if not share.is_held_down(victim.use_percent, parameters):
            return []
        slack = self.state.usual_percent < parameters.slack_percent
        gains: list[tuple[float, PodUse]] = []
        for other in window.pods:
            its = self.state.pods[other.uid]
            if other.uid == victim.uid or not (slack or its.is_new(now_ms, parameters)):
                continue
            gain = its.gain_points(now_ms, parameters)
            enough = its.recent_percent >= parameters.share_fraction * other.entitlement * 100.0
            if enough and gain >= parameters.gain_points:
                gains.append((gain, other))
        gains.sort(key=lambda one: (-one[0], one[1].uid))
        loss = share.usual_percent - share.recent_percent
        return _enough_for(parameters.gain_fraction * loss, gains)

    def _count_deficit(
        self,
        share: PodShare,
        pod: "PodUse",
        takers: "list[PodUse]",
        *,
        full: bool,
        seconds: float,
    ) -> None:
        parameters = self._parameters
        short = pod.use_percent is not None and share.deficit() > parameters.deficit
        if takers:
            share.deficit_seconds += (share.deficit() - parameters.deficit) * seconds
            most = HIGHEST_SCORE * parameters.open_after
            share.deficit_seconds = min(most, share.deficit_seconds)
            share.room_seconds = 0.0
        elif short and not full:
            share.room_seconds += seconds
            if share.room_seconds > parameters.rebase_after:
                share.rebase()
        elif pod.use_percent is not None:
            relief = parameters.deficit * seconds
            share.deficit_seconds = max(0.0, share.deficit_seconds - relief)
            share.room_seconds = 0.0

    def _hogs(self, window: "DeviceWindow", now_ms: int) -> "list[PodUse]":
        """Who holds most of a device's memory that is full, and took it not long ago."""
        used, total, parameters = (
            window.memory_used_bytes,
            window.memory_total_bytes,
            self._parameters,
        )
        if used is None or not total or used < parameters.memory_full_fraction * total:
            return []
        hogs = []
        for pod in window.pods:
            held = pod.memory_bytes
            if held is None or held < parameters.memory_hog_fraction * total:
                continue
            gain = self.state.pods[pod.uid].gain_bytes(held, now_ms, parameters)
            if gain >= parameters.memory_growth_fraction * total:
                hogs.append(pod)
        return hogs

    def _count_memory(
        self, share: PodShare, pod: "PodUse", hogs: "list[PodUse]", seconds: float
    ) -> None:
        most = HIGHEST_SCORE * self._parameters.open_after
        if hogs and pod.memory_bytes:
            share.memory_seconds = min(most, share.memory_seconds + seconds)
        else:
            share.memory_seconds = max(0.0, share.memory_seconds - seconds)

    def _settle(
        self, share: PodShare, takers: "list[PodUse]", hogs: "list[PodUse]", seconds: float
    ) -> None:
        """Open or close the blame; what is open takes over who is at it now."""
        parameters = self._parameters
        at_it = takers or hogs
        score = max(share.deficit_seconds, share.memory_seconds)
        blame = share.open
        if blame is None:
            if at_it and score >= parameters.open_after:
                share.open = self._blame(share, at_it, memory=not takers)
            return
        if at_it:
            blame.over = blame.over or self._is_over(at_it, memory=not takers)
        blame.below_seconds = (
            blame.below_seconds + seconds if score < parameters.close_below else 0.0
        )
        if blame.below_seconds >= parameters.close_after:
            share.open = None

    def _blame(self, share: PodShare, at_it: "list[PodUse]", *, memory: bool) -> OpenBlame:
        first = self.state.pods[at_it[0].uid]
        return OpenBlame(
            onset_ms=share.onset_ms,
            aggressors=[pod.uid for pod in at_it],
            memory=memory,
            over=self._is_over(at_it, memory=memory),
            usual_percent=share.usual_percent,
            aggressor_usual_percent=first.usual_percent,
            device_usual_percent=self.state.usual_percent,
        )

    def _is_over(self, at_it: "list[PodUse]", *, memory: bool) -> bool:
        """Whether one of them has more than it was given; one that was given none has, at any."""
        over = self._parameters.over_fraction
        if memory:
            return True
        return any(
            self.state.pods[pod.uid].recent_percent > over * pod.entitlement * 100.0
            for pod in at_it
        )

    def _learn(self, window: "DeviceWindow", seconds: float, *, held_down: bool) -> None:
        """Let what is usual follow; not while somebody is held down, or it would become usual."""
        state, parameters = self.state, self._parameters
        trouble = held_down or any(
            share.deficit_seconds or share.memory_seconds for share in state.pods.values()
        )
        for pod in window.pods:
            share = state.pods[pod.uid]
            share.frozen_seconds = share.frozen_seconds + seconds if trouble else 0.0
            if not trouble or share.frozen_seconds > parameters.frozen_for:
                share.learn(pod, seconds, parameters)
        if window.util_percent is not None and not trouble:
            over = min(parameters.baseline_over, state.seen_seconds)
            off = window.util_percent - state.usual_percent
            state.usual_percent += min(1.0, seconds / over) * off


def _enough_for(loss: float, gains: "list[tuple[float, PodUse]]") -> "list[PodUse]":
    """Those who each account for a loss; else all together, where they do; else nobody."""
    alone = [pod for gain, pod in gains if gain >= loss]
    if alone:
        return alone
    together = sum(gain for gain, _ in gains)
    return [pod for _, pod in gains] if gains and together >= loss else []
