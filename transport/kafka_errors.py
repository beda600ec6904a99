"""What aiokafka's errors mean to whoever reads them: one line that says what to do.

aiokafka tells its caller only that no broker could be used; why stands in its log.  So after such a
failure `why_unreachable` connects once more by itself and looks at what happens.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)

from transport.cancelling import whole
from transport.contract import (
    CredentialsError,
    NotAuthorizedError,
    TransportError,
    UnknownPartitionError,
    UnreachableError,
)
from transport.kafka_closing import closed

PROBE_SECONDS = 5.0

FAILURES = (KafkaError, OSError, TimeoutError)
"""Everything that aiokafka raises for what happens outside this process."""

NO_ACCESS = {
    TopicAuthorizationFailedError: "topic",
    GroupAuthorizationFailedError: "group",
    TransactionalIdAuthorizationFailed: "transactional id",
    ClusterAuthorizationFailedError: "cluster",
}
HUNG_UP = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
REFUSED = (SaslAuthenticationFailed, AuthenticationFailedError, IllegalSaslStateError)


async def translated(
    error: Exception, options: Mapping[str, Any], doing: str, resource: str = ""
) -> TransportError:
    """The error in our words.  `doing` is what failed, such as "read gpu.alerts".

    `options` are the connection's; `resource` names the topic, group or id, where there is one.
    """
    if isinstance(error, TransportError):
        return error
    for kind, what in NO_ACCESS.items():
        if isinstance(error, kind):
            return not_authorized(options, doing, f"{what} {resource}".rstrip())
    if isinstance(error, UnknownTopicOrPartitionError):
        return unknown_topic(resource)
    if isinstance(error, KafkaError) and not _is_away(error):
        return TransportError(f"Kafka would not {doing}: {one_line(error)}")
    return await why_unreachable(options, f"could not {doing}: {one_line(error)}")


def not_authorized(options: Mapping[str, Any], doing: str, resource: str) -> NotAuthorizedError:
    """What a missing ACL is answered with."""
    return NotAuthorizedError(f"{_who(options)} may not {doing}; give it an ACL for the {resource}")


def unknown_topic(topic: str) -> UnknownPartitionError:
    """What a topic that isn't there is answered with."""
    return UnknownPartitionError(
        f"there is no topic {topic!r}; run `gpuvigil topics create`, or correct kafka.prefix"
    )


def one_line(error: BaseException) -> str:
    """The error's name and text in one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return text if text.startswith(name) else f"{name}: {text}".removesuffix(": ")


async def why_unreachable(options: Mapping[str, Any], otherwise: str) -> TransportError:
    """Why no broker can be used: CredentialsError if a setting has to change first.

    Connects to every bootstrap server, for at most twice 5 s; `otherwise` is said if that works.
    """
    servers = options["bootstrap_servers"]
    faults = await asyncio.gather(*(_fault(options, server) for server in servers))
    for fault in faults:
        if fault is not None and not isinstance(fault, UnreachableError):
            return fault
    for fault in faults:
        if fault is not None:
            return fault
    return UnreachableError(f"Kafka at {','.join(servers)} answers, but {otherwise}")


async def _fault(options: Mapping[str, Any], server: str) -> TransportError | None:
    """What goes wrong when one server is asked for its brokers; None if nothing does."""
    host, _, port = server.rpartition(":")
    security = {k: v for k, v in options.items() if k != "bootstrap_servers"}
    connecting = create_conn(
        host, int(port), request_timeout_ms=round(PROBE_SECONDS * 1000), **security
    )
    try:
        connection = await asyncio.wait_for(connecting, PROBE_SECONDS)
    except FAILURES as error:
        cause = error.__cause__
        if isinstance(error, KafkaConnectionError) and isinstance(cause, OSError):
            return _explained(cause, options, server)
        return _explained(error, options, server)
    await connection.close()
    if await _bootstraps(options, server):
        return None
    if options.get("sasl_mechanism") == "OAUTHBEARER":
        return _refused(options, server)
    return _silent(options, server)


async def _bootstraps(options: Mapping[str, Any], server: str) -> bool:
    """Whether a server tells its brokers: one that wants SASL takes a connection without."""
    client = AIOKafkaClient(**{**options, "bootstrap_servers": [server]})
    try:
        await asyncio.wait_for(bootstrapped(client), PROBE_SECONDS)
    except FAILURES:
        return False
    finally:
        await closed(client)
    return True


async def bootstrapped(client: AIOKafkaClient) -> None:
    """Connect.  Raises KafkaConnectionError also where aiokafka notices nothing.

    A refused token is such a case: aiokafka does not read the refusal, takes the connection for a
    good one, and reads the next answer as one of a cluster without brokers.
    """
    await whole(client.bootstrap())
    if not client.cluster.brokers():
        raise KafkaConnectionError("no broker told its address")


def _explained(error: Exception, options: Mapping[str, Any], server: str) -> TransportError:
    if isinstance(error, TransportError):  # a token file that can't be read
        return error
    if isinstance(error, ssl.SSLError):
        return _no_tls(error, server)
    if isinstance(error, UnsupportedSaslMechanismError):
        return CredentialsError(
            f"{server} does not take the mechanism {options.get('sasl_mechanism')}; set "
            f"kafka.sasl_mechanism to one that it offers ({one_line(error)})"
        )
    if isinstance(error, REFUSED):
        return _refused(options, server)
    if isinstance(error, (KafkaConnectionError, *HUNG_UP)):
        return _silent(options, server)
    reason = "no answer" if isinstance(error, TimeoutError) else _system_text(error)
    return UnreachableError(
        f"no Kafka at {server} ({reason}); see that it runs, or set kafka.bootstrap"
    )


def _refused(options: Mapping[str, Any], server: str) -> CredentialsError:
    return CredentialsError(
        f"{server} refused the {options.get('sasl_mechanism')} credentials of {_who(options)}; "
        "correct the kafka.sasl_* settings"
    )


def _no_tls(error: ssl.SSLError, server: str) -> CredentialsError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return CredentialsError(
            f"the certificate of {server} is not trusted ({error.verify_message}); set "
            "kafka.ca_file to the authority that signed it, and connect by a name that it has"
        )
    return CredentialsError(
        f"no TLS connection to {server} ({error.reason or error}); does this port speak TLS, "
        "and does it want kafka.cert_file?"
    )


def _silent(options: Mapping[str, Any], server: str) -> UnreachableError:
    """A broker says nothing when it is spoken to in a protocol that it does not expect."""
    return UnreachableError(
        f"{server} takes connections and ends them without an answer; does it expect another "
        f"kafka.security_protocol than {options['security_protocol']}, or is it starting?"
    )


def _system_text(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)


def _who(options: Mapping[str, Any]) -> str:
    user = options.get("sasl_plain_username")
    return f"the user {user}" if user else "this client"


def _is_away(error: KafkaError) -> bool:
    """Whether the error only says that no broker could be used in time."""
    return isinstance(error, KafkaConnectionError) or bool(error.retriable)
