"""What holds for every test: settings of hypothesis, and one real Kafka for all tests that need it.

No deadline anywhere: a busy machine is not a fault of the code. With `CI` set the examples are the
same in every run, so a failure there is one of the change, and can be repeated with `CI=true`.
"""

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka.conn import AIOKafkaConnection
from hypothesis import settings

from transport.broker import Broker

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the fixture `kafka` is marked, before `-m` chooses."""
    for item in items:
        names = getattr(item, "fixturenames", [])
        if "kafka" in names:
            item.add_marker(pytest.mark.kafka)
        is_async = inspect.iscoroutinefunction(getattr(item, "obj", None))
        if is_async and item.get_closest_marker("kafka"):
            names.append(no_connection_is_left.__name__)


@pytest.fixture
async def no_connection_is_left() -> AsyncIterator[None]:
    """Ends connections that aiokafka forgets, as when the start of a client is cancelled.

    Python would find them in a later test, after the end of their loop, and fail that one.  What
    this program's own ends must close is the matter of `test_kafka_closing.py`.
    """
    yield
    loop = asyncio.get_running_loop()
    for one in gc.get_objects():
        if type(one) is AIOKafkaConnection and one.connected() and one._loop is loop:
            one.close()
    await asyncio.sleep(0.0)  # a socket closes in the loop's next turn


@pytest.fixture(scope="session")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """One real broker for the whole run, on free ports; the tests fail, never skip, without it.

    Its tests share it, so each names its topics and groups itself.  Who kills a broker starts its
    own.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{line}\n")
            sys.stderr.flush()

    with Broker(tmp_path_factory.mktemp("kafka"), progress=progress) as broker:
        yield broker
