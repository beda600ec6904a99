"""TLS, SASL and ACLs on a real Kafka: who is right gets in, who is not reads one clear line."""

import base64
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from commands.errors import UsageError
from commands.topics import app
from tests.kafka_topics import create
from tests.transport.certificates import Authority, authority
from transport.broker import Broker
from transport.connection import Connection
from transport.contract import (
    ConnectionSettingsError,
    CredentialsError,
    NotAuthorizedError,
    TransportError,
    UnknownPartitionError,
    UnreachableError,
)
from transport.kafka import KafkaTransport
from transport.kafka_admin import KafkaAdmin
from transport.layout import wanted_layouts

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ADMIN, STRANGER = "admin", "stranger"
PASSWORD = "correct-horse"  # noqa: S105 - of a broker that lives for a test
TOPIC = "security"
JAAS = "org.apache.kafka.common.security"
TIMEOUT_SECONDS = 10.0


class Secured(NamedTuple):
    """A broker with three listeners beside the plain one, and the files of its clients."""

    broker: Broker
    pki: Authority
    files: Path

    def connection(self, listener: str, protocol: str, **settings: Any) -> Connection:  # noqa: ANN401
        """The right settings, changed by `settings`."""
        given: dict[str, Any] = {
            "bootstrap": self.broker.addresses(listener),
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            given["ca_file"] = self.pki.ca_file
        if protocol.startswith("SASL"):
            given |= {"sasl_username": ADMIN, "sasl_password_file": self.files / "password"}
            given |= {"sasl_mechanism": "SCRAM-SHA-512"}
        return Connection.model_validate(given | settings)

    def sasl_ssl(self, **settings: Any) -> Connection:  # noqa: ANN401 - fields of many types
        return self.connection("SAFE", "SASL_SSL", **settings)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    files = tmp_path_factory.mktemp("secured")
    pki = authority(files / "pki")
    (files / "password").write_text(f"{PASSWORD}\n")
    (files / "wrong").write_text("wrong\n")
    users = [f"name={user},password={PASSWORD}" for user in (ADMIN, STRANGER)]
    mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    with Broker(
        files / "kafka",
        listeners={"SAFE": "SASL_SSL", "MUTUAL": "SSL", "OPEN": "SASL_PLAINTEXT"},
        overrides=properties(pki),
        format_args=[
            part
            for mechanism in mechanisms
            for user in users
            for part in ("--add-scram", f"{mechanism}=[{user}]")
        ],
    ) as broker:
        yield Secured(broker, pki, files)


def properties(pki: Authority) -> dict[str, str]:
    cert, key = pki.certificate("broker")
    keystore = pki.folder / "keystore.pem"
    keystore.write_text(key.read_text() + cert.read_text() + pki.ca_file.read_text())
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in (ADMIN, STRANGER))
    logins = {
        "plain": f"{JAAS}.plain.PlainLoginModule required {users};",
        "scram-sha-256": f"{JAAS}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{JAAS}.scram.ScramLoginModule required;",
        "oauthbearer": f"{JAAS}.oauthbearer.OAuthBearerLoginModule required;",
    }
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki.ca_file),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(name.upper() for name in logins),
        "listener.name.open.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.open.scram-sha-512.sasl.jaas.config": logins["scram-sha-512"],
        **{f"listener.name.safe.{name}.sasl.jaas.config": text for name, text in logins.items()},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS;User:CN={ADMIN}",
        "auto.create.topics.enable": "true",
    }


def token(user: str, seconds: float = 600) -> str:
    """A token without a signature, which only Kafka's validator for tests takes."""
    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + seconds}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


async def goes_through(connection: Connection, topic: str) -> None:
    async with KafkaTransport(connection, timeout_seconds=TIMEOUT_SECONDS) as transport:
        offset = await transport.publish(topic, 0, b"k", b"v")
        (record,) = await transport.read(topic, 0, offset, 9)
        assert record.value == b"v"


async def refusal(connection: Connection) -> TransportError:
    """What someone reads who can't even connect."""
    transport = KafkaTransport(connection, timeout_seconds=TIMEOUT_SECONDS)
    try:
        with pytest.raises(TransportError) as caught:
            await transport.start()
    finally:
        await transport.stop()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_over_tls(secured: Secured, mechanism: str) -> None:
    topic = f"{TOPIC}.{mechanism}"
    await create(secured.broker.bootstrap, topic, partitions=1)
    await goes_through(secured.sasl_ssl(sasl_mechanism=mechanism), topic)


async def test_a_token_over_tls(secured: Secured) -> None:
    topic, file = f"{TOPIC}.token", secured.files / "token"
    await create(secured.broker.bootstrap, topic, partitions=1)
    file.write_text(token(ADMIN))
    connection = secured.sasl_ssl(sasl_mechanism="OAUTHBEARER", sasl_token_file=file)
    await goes_through(connection, topic)


async def test_scram_without_tls(secured: Secured) -> None:
    topic = f"{TOPIC}.open"
    await create(secured.broker.bootstrap, topic, partitions=1)
    await goes_through(secured.connection("OPEN", "SASL_PLAINTEXT"), topic)


async def test_a_client_certificate(secured: Secured) -> None:
    topic = f"{TOPIC}.mutual"
    await create(secured.broker.bootstrap, topic, partitions=1)
    cert, key = secured.pki.certificate(ADMIN)
    await goes_through(secured.connection("MUTUAL", "SSL", cert_file=cert, key_file=key), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    wrong = secured.sasl_ssl(sasl_mechanism=mechanism, sasl_password_file=secured.files / "wrong")
    error = await refusal(wrong)
    assert isinstance(error, CredentialsError)
    assert f"refused the {mechanism} credentials of the user {ADMIN}" in str(error)


async def test_a_token_that_expired(secured: Secured) -> None:
    file = secured.files / "expired"
    file.write_text(token(ADMIN, seconds=-600))
    connection = secured.sasl_ssl(sasl_mechanism="OAUTHBEARER", sasl_token_file=file)
    error = await refusal(connection)
    assert isinstance(error, CredentialsError)
    assert "refused the OAUTHBEARER credentials" in str(error)
    with pytest.raises(CredentialsError, match="refused the OAUTHBEARER credentials"):
        async with KafkaAdmin(connection):
            pass


async def test_a_token_file_that_goes_missing(secured: Secured) -> None:
    file = secured.files / "gone"
    file.write_text(token(ADMIN))
    connection = secured.sasl_ssl(sasl_mechanism="OAUTHBEARER", sasl_token_file=file)
    transport = KafkaTransport(connection, timeout_seconds=TIMEOUT_SECONDS)
    file.unlink()
    with pytest.raises(ConnectionSettingsError, match="sasl_token_file: cannot read"):
        await transport.start()
    file.write_text(token(ADMIN))
    await transport.start()
    await transport.stop()


async def test_a_mechanism_that_is_not_offered(secured: Secured) -> None:
    error = await refusal(
        secured.connection("OPEN", "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256")
    )
    assert isinstance(error, CredentialsError)
    assert "does not take the mechanism SCRAM-SHA-256" in str(error)


async def test_an_unknown_authority(secured: Secured) -> None:
    other = authority(secured.files / "other", "another authority")
    for connection in (secured.sasl_ssl(ca_file=other.ca_file), secured.sasl_ssl(ca_file=None)):
        error = await refusal(connection)
        assert isinstance(error, CredentialsError)
        assert "is not trusted" in str(error)
        assert "kafka.ca_file" in str(error)


async def test_no_client_certificate(secured: Secured) -> None:
    error = await refusal(secured.connection("MUTUAL", "SSL"))
    assert "kafka.cert_file" in str(error)


async def test_no_tls_where_the_broker_wants_it(secured: Secured) -> None:
    error = await refusal(secured.connection("SAFE", "PLAINTEXT"))
    assert isinstance(error, UnreachableError)
    assert "another kafka.security_protocol than PLAINTEXT" in str(error)


async def test_no_sasl_where_the_broker_wants_it(secured: Secured) -> None:
    for connection in (secured.connection("SAFE", "SSL"), secured.connection("OPEN", "PLAINTEXT")):
        error = await refusal(connection)
        assert "another kafka.security_protocol than" in str(error)


async def test_tls_where_the_broker_has_none(secured: Secured) -> None:
    error = await refusal(secured.connection("PLAINTEXT", "SSL"))
    assert "another kafka.security_protocol than SSL" in str(error)


async def test_a_missing_acl(secured: Secured) -> None:
    topic = f"{TOPIC}.guarded"
    await create(secured.broker.bootstrap, topic, partitions=1)
    connection = secured.sasl_ssl(sasl_username=STRANGER)
    async with KafkaTransport(connection, timeout_seconds=TIMEOUT_SECONDS) as transport:
        for doing, asking in (
            ("write", transport.publish(topic, 0, None, b"v")),
            ("read", transport.read(topic, 0, 0, 1)),
            ("describe", transport.partitions(topic)),
        ):
            with pytest.raises(NotAuthorizedError) as caught:
                await asking
            assert str(caught.value) == (
                f"the user {STRANGER} may not {doing} {topic}; give it an ACL for the topic {topic}"
            )


async def test_topics_without_the_right_to_make_them(secured: Secured) -> None:
    connection = secured.sasl_ssl(sasl_username=STRANGER)
    async with KafkaAdmin(connection) as admin:
        with pytest.raises(NotAuthorizedError, match=rf"{STRANGER} may not create x\.gpu\."):
            await admin.create(wanted_layouts("x.", 1, 1))


async def test_asking_makes_no_topic_even_where_the_broker_would(secured: Secured) -> None:
    topic = f"{TOPIC}.absent"
    connection = Connection(bootstrap=secured.broker.bootstrap)
    async with KafkaTransport(connection, timeout_seconds=TIMEOUT_SECONDS) as transport:
        for asking in (
            transport.partitions(topic),
            transport.offsets(topic, 0),
            transport.publish(topic, 0, None, b"v"),
        ):
            with pytest.raises(UnknownPartitionError):
                await asking
    async with KafkaAdmin(connection) as admin:
        assert await admin.layouts([topic]) == {}


def test_the_command_line_says_one_line(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "BOOTSTRAP": secured.broker.addresses("SAFE"),
        "SECURITY_PROTOCOL": "SASL_SSL",
        "CA_FILE": secured.pki.ca_file,
        "SASL_MECHANISM": "SCRAM-SHA-512",
        "SASL_USERNAME": ADMIN,
        "SASL_PASSWORD_FILE": secured.files / "wrong",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"GPUVIGIL_KAFKA__{name}", str(value))
    with caplog.at_level(logging.WARNING):
        result = CliRunner().invoke(app, ["check"])
    assert isinstance(result.exception, UsageError)
    assert "refused the SCRAM-SHA-512 credentials" in str(result.exception)
    assert result.output == ""
    assert caplog.text == ""
