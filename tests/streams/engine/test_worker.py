"""A whole worker on Kafka says what the runner in the process says."""

import pytest

from producers.simulated import SimulatedCluster
from schemas.topics import ALERTS
from tests.streams.engine.running import (
    Kind,
    decided,
    fresh,
    make_topics,
    options,
    publish,
    running,
    until_same,
)
from transport.broker import Broker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("intake", ["faust", "direct"])
async def test_alerts_are_the_same_bytes_as_in_the_process(kafka: Broker, intake: Kind) -> None:
    cluster = SimulatedCluster(seed=1, duration_seconds=5400, interval_seconds=30)
    messages = list(cluster.messages())
    wanted = decided(messages, ALERTS)
    assert sum(map(len, wanted.values())) > 10
    connection = fresh(kafka, f"worker-{intake}")
    await make_topics(connection)
    await publish(connection, messages)
    async with running(options(connection, intake, checkpoint_seconds=1)) as one:
        await until_same(connection, ALERTS, wanted, one)
        await one.ended()
