"""What holds for every test: settings of hypothesis, and one real Kafka for all tests that need it.

No deadline anywhere: a busy machine is not a fault of the code. With `CI` set the examples are the
same in every run, so a failure there is one of the change, and can be repeated with `CI=true`.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from transport.broker import Broker

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the fixture `kafka` is marked, before `-m` chooses."""
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)


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
