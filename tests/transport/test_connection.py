"""The connection's settings: what they become, and what a wrong one is answered with."""

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.transport.certificates import Authority, authority, encrypted
from transport.connection import Connection
from transport.contract import ConnectionSettingsError

PASSWORD = "correct horse"  # noqa: S105 - the point is that it is not shown


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    return path


def scram(**changes: Any) -> Connection:  # noqa: ANN401 - fields of many types
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    return Connection.model_validate(given | changes)


def test_the_defaults_need_no_file() -> None:
    assert Connection().client_options() == {
        "bootstrap_servers": ["localhost:9092"],
        "client_id": "gpuvigil",
        "security_protocol": "PLAINTEXT",
    }


def test_the_prefix_stands_in_front_of_topics() -> None:
    assert Connection(prefix="eu.").topic("gpu.alerts") == "eu.gpu.alerts"


def test_several_brokers() -> None:
    options = Connection(bootstrap="a:1, [::1]:2,").client_options()
    assert options["bootstrap_servers"] == ["a:1", "[::1]:2"]


@pytest.mark.parametrize("bootstrap", ["", " , ", "kafka", "kafka:", ":9092", "kafka:x", "k:65536"])
def test_an_address_that_is_none_is_named(bootstrap: str) -> None:
    with pytest.raises(ConnectionSettingsError, match=r"kafka\.bootstrap.*host:port"):
        Connection(bootstrap=bootstrap).client_options()


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError):
        Connection.model_validate({"sasl_password": PASSWORD})


def test_the_password_is_the_file_without_its_line_end(password_file: Path) -> None:
    options = scram(sasl_username="me", sasl_password_file=password_file).client_options()
    assert options["sasl_plain_username"] == "me"
    assert options["sasl_plain_password"] == PASSWORD


def test_no_secret_is_shown(password_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = scram(sasl_username="me", sasl_password_file=password_file)
    options = connection.client_options()
    logging.getLogger().warning("%s %r %s", connection, connection, options)
    shown = caplog.text + repr(options) + connection.model_dump_json()
    assert PASSWORD not in shown
    assert "sasl_plain_password" in shown


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sasl_mechanism": None}, "sasl_mechanism"),
        ({"sasl_password_file": "/p"}, "SCRAM-SHA-512 needs kafka.sasl_username"),
        ({"sasl_username": "me"}, "SCRAM-SHA-512 needs kafka.sasl_password_file"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs kafka.sasl_token_file"),
        ({"ca_file": "/ca"}, "kafka.ca_file has no effect with security_protocol SASL_PLAINTEXT"),
        ({"security_protocol": "SSL"}, "kafka.sasl_mechanism has no effect"),
    ],
)
def test_settings_that_do_not_fit_each_other(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConnectionSettingsError, match=says):
        scram(**changes).client_options()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read .*secret: No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("setting", ["sasl_password_file", "sasl_token_file"])
def test_a_secret_that_can_not_be_read(
    tmp_path: Path, setting: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    mechanism = "PLAIN" if setting == "sasl_password_file" else "OAUTHBEARER"
    connection = scram(sasl_mechanism=mechanism, sasl_username="me", **{setting: path})
    with pytest.raises(ConnectionSettingsError, match=rf"^kafka\.{setting}: .*{says}") as caught:
        connection.client_options()
    assert "\n" not in str(caught.value)


async def test_a_token_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    connection = scram(sasl_mechanism="OAUTHBEARER", sasl_token_file=path)
    provider = connection.client_options()["sasl_oauth_token_provider"]
    assert await provider.token() == "first"
    path.write_text("second\n")
    assert await provider.token() == "second"
    assert "second" not in repr(provider) + repr(await provider.token())


async def test_a_token_that_goes_missing_is_a_fault_that_clients_retry(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    connection = scram(sasl_mechanism="OAUTHBEARER", sasl_token_file=path)
    provider = connection.client_options()["sasl_oauth_token_provider"]
    path.unlink()
    with pytest.raises(OSError, match=r"kafka\.sasl_token_file: cannot read") as caught:
        await provider.token()
    assert isinstance(caught.value, ConnectionSettingsError)


def tls(**changes: Any) -> Connection:  # noqa: ANN401 - fields of many types
    return Connection.model_validate({"security_protocol": "SSL"} | changes)


def test_brokers_are_verified_by_name() -> None:
    context = tls().client_options()["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_client_certificate_with_an_encrypted_key(pki: Authority, password_file: Path) -> None:
    cert, key = pki.certificate("me")
    connection = tls(
        ca_file=pki.ca_file,
        cert_file=cert,
        key_file=encrypted(key, PASSWORD),
        key_password_file=password_file,
    )
    assert isinstance(connection.client_options()["ssl_context"], ssl.SSLContext)


def test_faults_of_certificate_and_key(pki: Authority, tmp_path: Path) -> None:
    cert, key = pki.certificate("me")
    _, other = pki.certificate("other")
    locked = encrypted(key, PASSWORD)
    wrong, rubbish = tmp_path / "wrong", tmp_path / "rubbish"
    wrong.write_text("not it")
    rubbish.write_text("no certificate")
    faults: list[tuple[dict[str, Path], str]] = [
        ({"ca_file": tmp_path / "absent"}, r"kafka\.ca_file: cannot read .*absent"),
        ({"ca_file": rubbish}, r"kafka\.ca_file: .*rubbish holds no certificate"),
        ({"cert_file": tmp_path / "absent"}, r"kafka\.cert_file: cannot read"),
        ({"key_file": key}, r"kafka\.key_file needs kafka\.cert_file"),
        ({"cert_file": cert, "key_file": tmp_path}, r"kafka\.key_file: cannot read"),
        ({"cert_file": cert, "key_file": rubbish}, "cannot use .*rubbish"),
        ({"cert_file": cert, "key_file": other}, "fit each other"),
        ({"cert_file": cert, "key_file": locked}, "is encrypted; set kafka.key_password_file"),
        (
            {"cert_file": cert, "key_file": locked, "key_password_file": wrong},
            "the password has to be right",
        ),
    ]
    for changes, says in faults:
        with pytest.raises(ConnectionSettingsError, match=says) as caught:
            tls(**changes).client_options()
        assert "\n" not in str(caught.value)
