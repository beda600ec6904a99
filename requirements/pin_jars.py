"""Writes transport/broker_jars.sha256: every jar of a Kafka release, pinned by version and SHA-256.

Called by `make jars`.  The sums are those of the files as fetched now, so compare the difference
with what the release's own notes lead one to expect before committing it.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

from jgo.maven import Artifact, MavenContext

ROOTS = ("org.apache.kafka:kafka_2.13:4.4.0", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5")
PINS = Path(__file__).resolve().parents[1] / "transport" / "broker_jars.sha256"
HEADER = """\
# Apache Kafka and a backend for its log: SHA-256 and coordinates of every jar, and nothing else is
# ever put on the class path.  `make jars` writes this file (requirements/pin_jars.py).
"""


def resolved(context: MavenContext) -> dict[tuple[str, str], Artifact]:
    """Each root is resolved alone: together, log4j's managed versions would lower Kafka's own."""
    found: dict[tuple[str, str], Artifact] = {}
    for root in ROOTS:
        inputs, others = context.resolver.resolve([context.create_dependency(root)])
        for dependency in (*inputs, *others):
            found.setdefault((dependency.groupId, dependency.artifactId), dependency.artifact)
    return found


def pin(artifact: Artifact) -> str:
    """One line: sum and coordinates."""
    digest = hashlib.sha256(artifact.resolve().read_bytes()).hexdigest()
    return f"{digest}  {artifact.groupId}:{artifact.artifactId}:{artifact.version}\n"


def main() -> None:
    """Fetch everything into a folder of its own, so that no cache decides what is pinned."""
    with tempfile.TemporaryDirectory() as folder:
        artifacts = resolved(MavenContext(repo_cache=Path(folder)))
        lines = [pin(artifact) for _, artifact in sorted(artifacts.items())]
    PINS.write_text(HEADER + "".join(lines), encoding="ascii")
    sys.stderr.write(f"{PINS.name}: {len(lines)} jars\n")


if __name__ == "__main__":
    main()
