"""Who runs where and when in the simulated cluster, and what should be said about it.

Slots are the positions of devices on their node.  Workloads that misbehave are named after what
they do, so that an alert can be checked at a glance.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producers import scenarios
from producers.scenarios import MINUTE, Shape

if TYPE_CHECKING:
    from schemas.alerts import AlertKind

WARM_UP = 3 * MINUTE
"""Seconds for which the cards of late starters are seen idle, so that their idle power is known."""


@dataclass(frozen=True)
class Workload:
    """A controller of pods."""

    name: str
    kind: str
    namespace: str
    expected: "AlertKind | None" = None
    """The only kind of alert that is right for it; None: it is healthy."""

    @property
    def owner(self) -> str:
        """Name of the team that is told."""
        return f"team-{self.namespace}"


@dataclass(frozen=True)
class PodRun:
    """A pod's life on a node."""

    workload: Workload
    pod: str
    node: int
    slots: tuple[int, ...]
    shape: Shape
    begin_seconds: float = 0.0
    """Since the start of the simulation; 0: it was there before."""
    end_seconds: float | None = None
    gang: bool = False
    """True where all pods of the workload go through the same phases together."""

    @property
    def stream(self) -> str:
        """Name of the random stream of its phases."""
        return self.workload.name if self.gang else f"{self.pod}/{self.begin_seconds}"


def _slots(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


def _training() -> list[PodRun]:
    job = Workload("training", "Job", "language")
    return [
        PodRun(job, f"training-{node}", node, _slots(0, 7), scenarios.training, gang=True)
        for node in (0, 1)
    ]


def _inference() -> list[PodRun]:
    bursty = Workload("bursty-inference", "Deployment", "serving")
    mig = Workload("mig-inference", "Deployment", "serving")
    return [
        *(PodRun(bursty, f"{bursty.name}-{n}", 3, (2 + n,), scenarios.bursty) for n in range(2)),
        *(PodRun(mig, f"{mig.name}-{n}", 7, (7 + n,), scenarios.instance) for n in range(5)),
    ]


def _shared() -> list[PodRun]:
    """Two deployments whose pods sit side by side on the cards of node 6."""
    return [
        PodRun(workload, f"{workload.name}-{slot}", 6, (slot,), scenarios.shared)
        for workload in (
            Workload("shared-embedding", "Deployment", "search"),
            Workload("shared-reranking", "Deployment", "search"),
        )
        for slot in range(4)
    ]


def _ordinary() -> list[PodRun]:
    """Pods that are busy, or small, and nothing else."""
    rows = (
        ("evaluation", "Job", "language", 2, _slots(4, 5), scenarios.steady),
        ("fine-tuning", "Job", "vision", 4, _slots(2, 5), scenarios.steady),
        ("small-kernels", "Job", "speech", 5, _slots(0, 1), scenarios.small_kernels),
        ("batch-embedding", "Job", "search", 5, _slots(2, 5), scenarios.steady),
        ("transcoding", "Deployment", "vision", 6, _slots(4, 6), scenarios.shared),
        ("diffusion", "Job", "vision", 7, _slots(0, 5), scenarios.steady),
    )
    return [
        PodRun(Workload(name, kind, namespace), f"{name}-0", node, slots, shape, WARM_UP)
        for name, kind, namespace, node, slots, shape in rows
    ]


def _wasteful() -> list[PodRun]:
    """Everything that should be found."""
    hung = Workload("hung-job", "Job", "language", "busy_stalled")
    killed = 100 * MINUTE
    rows: tuple[tuple[str, str, str, int, tuple[int, ...], Shape, AlertKind], ...] = (
        ("notebook", "Notebook", "research", 4, (1,), scenarios.notebook, "idle"),
        ("idle-server", "Deployment", "serving", 3, (0,), scenarios.idle_server, "idle_held"),
        ("idle-then-used", "Deployment", "vision", 3, (1,), scenarios.idle_then_used, "idle_held"),
        ("low-use", "Deployment", "research", 2, (6, 7), scenarios.low_use, "low_use"),
        ("leaking-server", "Deployment", "serving", 5, (6,), scenarios.leaking, "memory_leak"),
    )
    return [
        *(
            PodRun(Workload(name, kind, namespace, expected), f"{name}-0", node, slots, shape)
            for name, kind, namespace, node, slots, shape, expected in rows
        ),
        PodRun(hung, "hung-job-0", 2, _slots(0, 3), scenarios.hung, WARM_UP, killed),
        PodRun(hung, "hung-job-1", 2, _slots(0, 3), scenarios.steady, killed + 30),
    ]


def _changing() -> list[PodRun]:
    """Pods that end, are replaced, or come back under the same name."""
    job = Workload("short-job", "Job", "vision")
    rollout = Workload("rollout", "Deployment", "serving")
    recreated = Workload("recreated", "StatefulSet", "search")
    replaced, deleted = 40 * MINUTE, 50 * MINUTE
    return [
        PodRun(job, "short-job-0", 3, (6, 7), scenarios.steady, WARM_UP, 30 * MINUTE),
        PodRun(rollout, "rollout-v1-0", 3, (4,), scenarios.bursty, 0.0, replaced + 20),
        PodRun(rollout, "rollout-v2-0", 3, (5,), scenarios.loading, replaced),
        PodRun(recreated, "recreated-0", 4, (0,), scenarios.steady, 0.0, deleted),
        PodRun(recreated, "recreated-0", 4, (0,), scenarios.loading, deleted + 30),
    ]


RUNS: tuple[PodRun, ...] = (
    *_training(),
    *_inference(),
    *_shared(),
    *_ordinary(),
    *_wasteful(),
    *_changing(),
)

EXPECTED: dict[str, "AlertKind | None"] = {run.workload.name: run.workload.expected for run in RUNS}
"""By workload: the only kind of alert that is right, or None."""
