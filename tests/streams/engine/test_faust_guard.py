"""What of Faust, mode and aiokafka the engine overrides, calls or relies on is as it was read.

Faust is pinned to one version, because its private names are used.  Where one of these sources
changes, the reason beside it says what to read again before its new hash is written here.
"""

import ast
import hashlib
import importlib
import inspect
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import faust
import pytest
from faust.types import StreamT

from schemas.topics import PODS, TELEMETRY
from streams.engine.app import Worker
from tests.kafka_topics import create
from tests.streams.engine.running import (
    Running,
    fresh,
    make_topics,
    options,
    producer_of,
    publish,
    simulated,
)
from transport.broker import Broker
from transport.connection import Connection

ROOT = Path(__file__).parents[3]
WATCHED = (
    *sorted((ROOT / "streams/engine").glob("*.py")),
    ROOT / "transport/kafka_closing.py",
    ROOT / "transport/kafka_producer.py",
)
FOREIGN = ("faust", "mode", "aiokafka")
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Public, in spite of their names."""

CONSUMER = "faust.transport.consumer"
DRIVER = "faust.transport.drivers.aiokafka"
APP = "faust.app.base"
COORDINATOR = "aiokafka.consumer.group_coordinator:GroupCoordinator"


class Guarded(NamedTuple):
    """A source that must not change unseen."""

    name: str
    """Its module and its name there."""
    why: str
    sha256: str
    """Of the source with every run of white space as one space."""
    also: tuple[str, ...] = ()
    """Attributes that this source gives a meaning to and that we use."""

    @property
    def vouches_for(self) -> set[str]:
        """The names whose use by the engine it covers."""
        return {self.name.rpartition(":")[2].rpartition(".")[2], *self.also}


GUARDED = (
    # Whose log it is
    Guarded(
        "mode.services:ServiceBase._init_subclass_logger",
        "a class with a logger of its own keeps it; ours give Faust's words to Faust's logger",
        "1522271814a1b1c5ea16ade9320760b9b950f09a82a5a6a78f5ba7c17e0fe76c",
        also=("logger",),
    ),
    # What a membership ended with
    Guarded(
        f"{COORDINATOR}.check_errors",
        "it raises, in the consumer's own loop, what the coordination met, and forgets it",
        "9466dac209b4838b29288ee4d77ef7a35891f945e6c0155d45ab922cbe511cc9",
        also=("_coordinator",),
    ),
    # The fetching loop, from Faust's fetcher to aiokafka
    Guarded(
        f"{CONSUMER}:Fetcher._fetcher",
        "it runs _drain_messages once for each rebalance and lets its errors crash the app",
        "4890e8ccb687a9994ca196a8ea0930ba8123c57c888c7ede67b45b5a8cf85a91",
    ),
    Guarded(
        f"{CONSUMER}:Consumer._drain_messages",
        "it calls getmany again and again, also when nothing comes back, and raises what we raise",
        "30fba6e560f13bf79dd171ef4df3870592550143c652d6db5c2c305d38e08e6c",
    ),
    Guarded(
        f"{CONSUMER}:Consumer.getmany",
        "what _getmany returns, and only that, goes on through Faust: the cold topics' records",
        "1b41be7cf1f1a173d04ebaefd0b9418d5eb0fa7e5b88427466aad16f88a40e56",
    ),
    Guarded(
        f"{CONSUMER}:Consumer._wait_next_records",
        "it calls _getmany with the active partitions, by these names, once the flow is resumed",
        "1f67795402ab6d82f2f21a839661796459e7106927b5468cb89a8326c238b8cb",
    ),
    Guarded(
        f"{CONSUMER}:ThreadDelegateConsumer._getmany",
        "overridden: it does nothing but fetch in the consumer's thread",
        "5d6f5dc0eb163bd8a2df6e801a55e0b59d28a6677cafea42bf7764a285de2c58",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread.getmany",
        "it hands the set of partitions on as it is, and takes our consumer's _max_poll_records",
        "6d95f339e9fc145f1c4cf71dde0be026cb39f2a2a8ab7d7d38b6670e56f2349e",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread._fetch_records",
        "it is fetched_records of aiokafka, and nothing while the flow is stopped",
        "17bb4a98ab83c224faf65b21b197d6e3f24384c51a0f9faf9d6583450b4d6d9e",
    ),
    Guarded(
        "aiokafka.consumer.fetcher:Fetcher.fetched_records",
        "an empty set of partitions means all of them: it must never get one",
        "c9d369de9e887a3d2cd65f6225d4a52c81addd4abcc623e47727f83bcacf89fa",
    ),
    Guarded(
        "aiokafka.consumer.consumer:AIOKafkaConsumer.getmany",
        "no partitions means all of them; it gives only what the subscription fetched",
        "0448b193bfeed9f27404438785b18b49aa4c553ad5ea1d6324230beaaa5b3f75",
    ),
    # The consumer and its thread
    Guarded(
        f"{DRIVER}:Consumer._new_consumer_thread",
        "overridden: it makes the thread and nothing else",
        "fabed00895eb6e68019fede5bf716c5b0655fba627a52397cbb287401f8de27d",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread._create_worker_consumer",
        "overridden: it makes the consumer and keeps nothing that others need but the assignor",
        "5fd89148e582e5a2ee0dc590bcf68809621e1f2bb914011b5d1302732d3b1e39",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread.on_start",
        "the consumer is made and started in the thread's own running loop",
        "35dffc4989978126fee184c21354304a87c756faa73ad8eaeb1c4a04546e192c",
        also=("_consumer",),
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread.on_thread_stop",
        "the consumer is stopped in its own loop when the thread ends, so close may do nothing",
        "7ec142b2e1c4337ba1e83f506217d5a70c50026900c47b1ca67fca95dd7309c5",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread.close",
        "overridden: it closes parts of the consumer from another loop",
        "ff5db96e100da43987a3480cc3c5acf392d2aaed800684e52ff6124bc8811858",
    ),
    Guarded(
        f"{APP}:App._on_rebalance_when_stopped",
        "the only caller of close, in a rebalance while the app stops",
        "11083339ace1d295cbc350389fb7c0a22250d25c95cfffb47a8fb9e19a97cdad",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread._ensure_consumer",
        "called: it gives the consumer that _create_worker_consumer made",
        "ac776008dee497d2b0f60164fff9eb6ab09a0196c692620b649e6a428684fd85",
    ),
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread.verify_event_path",
        "overridden for the engine's topics: it only logs, and would miss their streams",
        "2efa903c1c76addd90a3901b4c8ce8c45e73a9c1495bc0517d7f28d0b76587bb",
    ),
    Guarded(
        "mode.threads:ServiceThread.start",
        "it makes the thread of the class attribute Worker",
        "4265937a711eceb655616e68567383db2d4780bf99ebeb0c9d2b1f14e77fd679",
        also=("Worker",),
    ),
    Guarded(
        "mode.threads:WorkerThread.__init__",
        "it sets daemon, which we set again, before the thread starts",
        "c1e17aeaf4e0ca28cae8afb432c6cef91fa0e4bd90cb912af3d0df66d36f944e",
    ),
    Guarded(
        "mode.threads:WorkerThread.run",
        "overridden: it raises what has crashed the app already",
        "77b91bcccb9105036e6b963b2fe358fb7b047c3f96e2bbb8f2291ba217e6b9c7",
    ),
    Guarded(
        "mode.threads:ServiceThread._serve",
        "what the thread dies of crashes the app, before it is printed and raised",
        "f923c92dcaeabf28b326181b1fee2f325aa10c267dd1eee6d57181f9faeb3c0a",
    ),
    Guarded(
        "mode.threads:ServiceThread.on_crash",
        "overridden: it prints and nothing else",
        "a061465729dd3634a62e081ce2f1db3201f41f5fc8afd25891b44d3e81636e85",
    ),
    Guarded(
        "mode.threads:ServiceThread._wakeup_timer_in_thread",
        "overridden: its coroutine is never awaited where the app's loop ends first",
        "07a85bc3b3519f9137d61c9d64fe215137a5708b09c3b6d93bc18213a1d80c26",
        also=("last_wakeup_at", "parent_loop"),
    ),
    # Offsets
    Guarded(
        f"{DRIVER}:AIOKafkaConsumerThread.seek_to_committed",
        "overridden: it would move the engine's topics to the group's offsets, which are a hint",
        "fd3fb55f04244c813030312f9ba9a94c6f6185a81ee0812a9b1241c8b07ca765",
    ),
    Guarded(
        f"{CONSUMER}:Consumer.perform_seek",
        "after a rebalance it takes from seek_to_committed where the cold topics go on",
        "8c88bc25f247c23f670c9e5022ba8148064113eab82b8e48f1256126e3193ba3",
    ),
    Guarded(
        "aiokafka.consumer.consumer:AIOKafkaConsumer.seek_to_committed",
        "no partitions means all of them: it must never get none",
        "5bf7c60fd74d171c185682059c5547b1dc5a36840d88df99556fdb1b9c40c870",
    ),
    # Rebalances
    Guarded(
        f"{DRIVER}:ConsumerRebalanceListener.on_partitions_revoked",
        "the rebalance waits for it, and it for the app's handler in the main thread",
        "dde7584f17c0f4f91cab7a7d0c559604d912db71e3a7c4be466cd322410d1ac6",
    ),
    Guarded(
        f"{DRIVER}:ConsumerRebalanceListener.on_partitions_assigned",
        "the rebalance waits for it, and it for the app's handler in the main thread",
        "03a515a25ccf87ddb3f135be84aa8b2c15540fa6c50068710bfedab0ff3fc49e",
    ),
    Guarded(
        f"{CONSUMER}:Consumer.on_partitions_revoked",
        "it calls the app's handler and nothing of it touches positions",
        "2550a9105d4c6b242bb3a6adab79595eea5369fdaac63b281e53308c7caf3caa",
    ),
    Guarded(
        f"{CONSUMER}:Consumer.on_partitions_assigned",
        "it calls the app's handler and nothing of it touches positions",
        "0e5b1be4b419a18e99ea8bd967239b4b333b0b2e1e4834abb83cb7a112ac3758",
    ),
    Guarded(
        f"{APP}:App._on_partitions_revoked",
        "it sends on_partitions_revoked once a rebalance, waits for us, and crashes on an error",
        "0179134ab9016de841b9eb71f02d04affdaca4ec1a7f3967f64aa3320d6b71b0",
    ),
    Guarded(
        f"{APP}:App._on_partitions_assigned",
        "it sends on_partitions_assigned once a rebalance, with all that is assigned",
        "6a8bb930f6ed98fb6f3d80b0c553f45e201767b98873560b98ad13b00125d20c",
    ),
    Guarded(
        "faust.tables.recovery:Recovery._resume_streams",
        "without tables it resumes every partition and the flow right after a rebalance",
        "e841a9bf6c727d0364de66d52c5fae513e0108d89be9202e9300821acd2e0c8b",
    ),
    Guarded(
        f"{COORDINATOR}._on_join_prepare",
        "it waits for the revoked listener and only logs its errors; heartbeats go on meanwhile",
        "52c9c084bcf7c947382fa5e5cdd02a337bedc4a7760956184c8ca936fd87b739",
        also=("on_partitions_revoked",),
    ),
    Guarded(
        f"{COORDINATOR}._on_join_complete",
        "the assignment stands before the assigned listener is called, so that it can seek",
        "710ef4bba4f06332505020bdf953bc7f943e51a0dbc33805063899a3eb9ffcd1",
        also=("on_partitions_assigned",),
    ),
    Guarded(
        "aiokafka.coordinator.assignors.range:RangePartitionAssignor.assign",
        "it gives partition n of topics with equally many partitions to one member",
        "58eecdb612640f30ae5ea8c1434f35144304f7da79412f92712f017f18e2b548",
    ),
    # What the app starts and stops
    Guarded(
        f"{APP}:App.on_first_start",
        "overridden: it makes directories for tables and nothing else",
        "cc4e5bd9c5860f54dd03cd0352e515201573c0f22fa13f7a984fe36dcc0d18b2",
    ),
    Guarded(
        f"{APP}:App.on_start",
        "overridden without a Faust consumer: it finalizes the app and wants the consumer's beacon",
        "1447f452335c71b9cc63c981b17201ad18737a7a84bc186cc838ecda0185776e",
    ),
    Guarded(
        f"{APP}:App.on_started",
        "without Kafka no table recovery is waited for, because none has started",
        "e762da5d4b6becd256d9a73b4e6902801d44cbc00290b9241221b8072622caaa",
    ),
    Guarded(
        f"{APP}:App._stop_consumer",
        "it stops the flow and the fetcher before the consumer's thread ends",
        "61a44207b1dac903d1463bf073278992e81774309eb9ba22b85e01acacbbcdd1",
    ),
    Guarded(
        f"{APP}:BootStrategy",
        "which parts start with which switch; kafka_consumer is where the reader takes its place",
        "a70f504872aba25d0e26f6613a7a27f044acec1f1c36b11f65626fc2a21d7b55",
        also=("enable_kafka", "enable_kafka_producer", "kafka_consumer"),
    ),
    Guarded(
        "mode.services:Service.add_future",
        "a task of a service: what it raises crashes the service, and cancelling it is no crash",
        "67c81075a007a0c4d5761a51782759163efac8d68905efb55dfbc46880e75199",
    ),
    Guarded(
        "mode.services:Service._execute_task",
        "see add_future",
        "8e3c8ee7a75a1d0b68d7d3df6ec49efd5c644fb30e314fed96c3e1bf84cc4283",
    ),
    Guarded(
        "mode.services:Service.crash",
        "a crash of a part is one of the app, with its reason, and ends wait_until_stopped",
        "61cc0acfabb6dc2ccab79d69c0e1b219767cbded346f7544dd5016449b176e62",
    ),
    Guarded(
        "mode.services:Service.stop",
        "it calls on_stop first, then stops the children, and stops only once",
        "a3ec8de4102cfe2b1fdb74739b3aadfb5a7973e62c74805940bbf1a9d699c78d",
        also=("on_stop",),
    ),
    Guarded(
        "mode.services:Service._actually_start",
        "it calls on_start and raises what that raises",
        "560bc752991519bd35261d48c5906849d58e3db59372cbd5878ea67bdb0d866c",
    ),
    # Producers that are given up
    Guarded(
        "aiokafka.producer.sender:Sender.start",
        "the task that sends; without it nothing is sent any more",
        "b2a5f20c05753190e95a6b02a5729e6eb3647f83e9995e8df80eb8f90016f844",
        also=("sender_task",),
    ),
    Guarded(
        "aiokafka.producer.producer:AIOKafkaProducer.__init__",
        "it makes the sender",
        "6f39a31c016aed78af777ae4e3d6b8a4132e9e73bf2789fa0a5d6d93fbad0650",
        also=("_sender", "_message_accumulator"),
    ),
    Guarded(
        "aiokafka.producer.producer:AIOKafkaProducer.__del__",
        "it warns of a producer that was forgotten, by _closed",
        "fb9e95a54acc970aa16991b229a7a3b93a2c167f132304756a7192d1d600039c",
        also=("_closed",),
    ),
    Guarded(
        "aiokafka.producer.message_accumulator:MessageBatch.failure",
        "it fails the wait for room behind a batch, for which nobody may wait",
        "f578d10f7af8fbd88a9c246d9b790c171f10bc3519f7477a3454fa7616b1ff5d",
        also=("_drain_waiter",),
    ),
    Guarded(
        "aiokafka.producer.message_accumulator:MessageAccumulator.fail_all",
        "it fails the batches that are not sent yet",
        "d07517897f49228a6475905ec1751137a96ff02070754bf6be65cd67080371ae",
        also=("_batches",),
    ),
    Guarded(
        "aiokafka.producer.transaction_manager:TransactionManager.fatal_error",
        "it fails the wait for the transaction's end, for which nobody may wait",
        "12aa6d76c94c0f4000271145e0cd93ef6040b5f1253d9a56c80828e07a79b46d",
        also=("_transaction_waiter", "_txn_manager"),
    ),
    # Clients that end
    Guarded(
        "aiokafka.client:AIOKafkaClient.__init__",
        "it makes the dictionary of connections; consumer, admin client and producer hold a client",
        "2c145ca6f55a3ac8f8e6d6dc9ffd24b0336abdfd2b4dd08dd2236b0a7d445ea5",
        also=("_conns", "_client"),
    ),
    Guarded(
        "aiokafka.client:AIOKafkaClient._get_conn",
        "a connection that was just opened is put into the dictionary, and used from there",
        "3731737ebfcdd705ac7514b30fcb2a459be348d42cdac86c182e3d213b2cd8e5",
    ),
    Guarded(
        "aiokafka.client:AIOKafkaClient.close",
        "it closes what the dictionary holds, and nothing after that",
        "f76d3f828a6410af06a4461fb5f1e08289877906884bb63b8b86b05ac0b97140",
    ),
    Guarded(
        "aiokafka.conn:AIOKafkaConnection.close",
        "it may be called again; it forgets its writer and gives the future of the socket's end",
        "ceaf7f674d89ab0dd9d667db5dc84514d0c22503740ed4f14378295b560d168e",
        also=("_writer",),
    ),
)


def found(guarded: Guarded) -> object:
    module, _, name = guarded.name.partition(":")
    thing: object = reduce(getattr, name.split("."), importlib.import_module(module))
    return getattr(thing, "fun", thing)  # of mode's tasks, the function


def sha256(thing: object) -> str:
    source = inspect.getsource(thing)  # type: ignore[arg-type]
    return hashlib.sha256(" ".join(source.split()).encode()).hexdigest()


@pytest.mark.parametrize("guarded", GUARDED, ids=lambda one: one.name)
def test_what_we_depend_on_is_as_we_read_it(guarded: Guarded) -> None:
    now = sha256(found(guarded))
    assert now == guarded.sha256, (
        f"{guarded.name} is not what it was (Faust {faust.__version__}, aiokafka "
        f"{aiokafka.__version__}). We depend on it because: {guarded.why}. Read its new source, "
        f"check streams/engine/batches.py and direct.py against it, run test_intakes.py, and then "
        f"write {now!r} here"
    )


def test_nothing_is_guarded_twice() -> None:
    names = [one.name for one in GUARDED]
    assert sorted(set(names)) == sorted(names)


def foreign_uses(tree: ast.Module, namespace: dict[str, Any]) -> Iterator[str]:
    """Private attributes of others, and what classes change of a foreign base."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node.attr
        if isinstance(node, ast.ClassDef):
            for base in foreign_bases(node, namespace):
                yield from (name for name in changed(node) if has(base, name))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def has(base: type, name: str) -> bool:
    """Whether a class has a name of its own, or says that its instances have."""
    return hasattr(base, name) or any(name in inspect.get_annotations(k) for k in base.__mro__)


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def foreign_bases(node: ast.ClassDef, namespace: dict[str, Any]) -> Iterator[type]:
    for base in node.bases:
        first, *others = ast.unparse(base).split("[")[0].split(".")
        kind = reduce(getattr, others, namespace.get(first))
        if isinstance(kind, type) and kind.__module__.partition(".")[0] in FOREIGN:
            yield kind


def changed(node: ast.ClassDef) -> Iterator[str]:
    """What a class defines or sets in its body, and the private names that it uses of itself."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name
        elif isinstance(part, ast.Assign):
            yield from (target.id for target in part.targets if isinstance(target, ast.Name))
    for deep in ast.walk(node):
        if isinstance(deep, ast.Attribute) and is_private(deep.attr) and is_own(deep.value):
            yield deep.attr


@pytest.mark.parametrize("path", WATCHED, ids=lambda path: path.stem)
def test_nothing_is_used_that_is_not_guarded(path: Path) -> None:
    relative = path.relative_to(ROOT).with_suffix("")
    module = importlib.import_module(".".join(relative.parts))
    vouched = set().union(*(one.vouches_for for one in GUARDED))
    used = set(foreign_uses(ast.parse(path.read_text()), vars(module)))
    assert used <= vouched, f"add what it relies on to GUARDED, with the reason: {used - vouched}"


def test_the_search_for_uses_finds_each_kind() -> None:
    text = """
class Mine(faust.App):
    title = "x"
    enable_kafka = 1
    def on_start(self):
        self._stopped.set(); self._mine = other._hidden
        return super()._new_consumer()
    def my_own(self): ...
class Ours(Other):
    def on_start(self): self._private = 1
"""
    uses = set(foreign_uses(ast.parse(text), {"faust": faust, "Other": object}))
    assert uses == {"on_start", "_stopped", "_hidden", "_new_consumer"}


@pytest.mark.slow
async def test_a_cold_topic_goes_through_faust_beside_the_hot_ones(kafka: Broker) -> None:
    """Faust's agent gets its messages and Faust commits them, so that a restart repeats none."""
    connection = fresh(kafka, "cold")
    await make_topics(connection)
    await create(kafka.bootstrap, connection.topic("cold"), partitions=2)
    messages = simulated(60)
    await publish(connection, messages)
    assert await heard(connection, "first", len(messages)) == ["first 0", "first 1"]
    assert await heard(connection, "then", len(messages)) == ["then 0", "then 1"]


async def heard(connection: Connection, word: str, messages: int) -> list[str]:
    """What a worker's agent of the cold topic gets, once the engine has read so many messages."""
    worker = Worker(options(connection, "faust"))
    topic = worker.app.topic(connection.topic("cold"), value_type=bytes, value_serializer="raw")
    seen: list[str] = []

    @worker.app.agent(topic)
    async def cold(stream: StreamT[bytes]) -> None:
        async for value in stream:
            seen.append(value.decode())  # noqa: PERF401 - the stream has no end

    run = Running(worker)
    await run.until(lambda: read(run) == messages)
    async with producer_of(connection) as producer:
        for n in range(2):
            text = f"{word} {n}".encode()
            await producer.send_and_wait(connection.topic("cold"), text, partition=n)
    await run.until(lambda: len(seen) > 1)
    await run.ended()
    return sorted(seen)


def read(run: Running) -> int:
    return sum(offset for (topic, _), offset in run.next.items() if topic in {TELEMETRY, PODS})
