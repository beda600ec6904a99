"""Which faults of Kafka pass by themselves, which end the worker, and what is said then."""

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidSessionTimeoutError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from streams.outputs import TooManyFaultsError
from streams.states import NewerStateError
from transport.connection import Connection
from transport.contract import ConnectionSettingsError, TransportError
from transport.kafka_errors import translated

TRANSIENT = (KafkaError, OSError, TimeoutError)
"""Faults of a broker that is away or busy: tried again while the partition is ours.  Ask `is_final`
first."""

NOT_ALLOWED = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailedError,
)


class StateTopicError(Exception):
    """The checkpoints can't be used by this worker; the text says what to do."""


OURS = (NewerStateError, StateTopicError, TooManyFaultsError)
"""Faults whose text already says what to do."""

FINAL = (*OURS, *NOT_ALLOWED)
"""Faults that another try can't mend: the worker stops and says so."""


async def told(error: KafkaError, connection: Connection, session_seconds: float) -> TransportError:
    """A worker's last fault in words that say what to do."""
    if isinstance(error, InvalidSessionTimeoutError):
        return ConnectionSettingsError(
            f"the broker refuses sessions of {session_seconds:g} s; give --session a value between "
            "its group.min.session.timeout.ms and group.max.session.timeout.ms (6 s and 30 min, "
            "unless somebody changed them)"
        )
    resource = str(error.args[0]) if error.args else ""
    return await translated(error, connection.client_options(), "go on", resource)
