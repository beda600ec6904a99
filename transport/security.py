"""TLS and SASL as aiokafka takes them, from files.

A secret is read when a client is made, kept in the client alone, and shown by no `repr`.
"""

import ssl
from pathlib import Path
from typing import Any, TypeVar

from aiokafka.abc import AbstractTokenProvider

from transport.connection import Connection
from transport.contract import ConnectionSettingsError

T = TypeVar("T")

TLS = ("SSL", "SASL_SSL")
SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class Secret(str):
    """A string whose `repr` hides it: options and tracebacks may be printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class TokenFileError(ConnectionSettingsError, OSError):
    """No token could be read for a new connection.

    An OSError as well: aiokafka then tries again, as it does when a broker is away, so a token that
    is missing for a moment ends no running client.
    """


class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The token that a file holds at the moment: Kubernetes writes a new one before it expires."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """The token.  Raises TokenFileError where the file can't be read or is empty."""
        try:
            return secret("sasl_token_file", self._path)
        except ConnectionSettingsError as error:
            raise TokenFileError(str(error)) from error


def security_options(connection: Connection) -> dict[str, Any]:
    """The options `security_protocol`, `ssl_context` and `sasl_*`.

    Raises ConnectionSettingsError for a setting that is missing or useless, and for a file that
    can't be read.
    """
    protocol = connection.security_protocol
    options: dict[str, Any] = {"security_protocol": protocol}
    _refuse_useless(connection)
    if protocol in TLS:
        options["ssl_context"] = _ssl_context(connection)
    if protocol in SASL:
        options |= _sasl_options(connection)
    return options


def secret(setting: str, path: Path) -> Secret:
    """What a file holds, without the line's end.  Raises ConnectionSettingsError."""
    try:
        text = path.read_text("utf-8").strip("\r\n")
    except OSError as error:
        raise ConnectionSettingsError(
            f"kafka.{setting}: cannot read {path}: {error.strerror}"
        ) from error
    except UnicodeDecodeError:
        raise ConnectionSettingsError(f"kafka.{setting}: {path} is not UTF-8 text") from None
    if not text:
        raise ConnectionSettingsError(f"kafka.{setting}: {path} is empty; write the secret into it")
    return Secret(text)


def _refuse_useless(connection: Connection) -> None:
    """A setting without effect is a misunderstanding: someone believes the line is safe."""
    protocol = connection.security_protocol
    for setting, value in connection:
        if value is None:
            continue
        if setting in {"ca_file", "cert_file", "key_file", "key_password_file"}:
            needed = TLS
        elif setting.startswith("sasl_"):
            needed = SASL
        else:
            continue
        if protocol not in needed:
            raise ConnectionSettingsError(
                f"kafka.{setting} has no effect with security_protocol {protocol}; "
                f"set security_protocol to {' or '.join(needed)}, or leave it out"
            )


def _ssl_context(connection: Connection) -> ssl.SSLContext:
    for setting in ("ca_file", "cert_file", "key_file"):
        path = getattr(connection, setting)
        if path is not None:
            secret(setting, path)
    context = _trust(connection.ca_file)
    if connection.cert_file is not None:
        _present(context, connection, connection.cert_file)
    elif connection.key_file is not None:
        raise ConnectionSettingsError("kafka.key_file needs kafka.cert_file: set both")
    return context


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ConnectionSettingsError(
            f"kafka.ca_file: {ca_file} holds no certificate in PEM ({error.reason})"
        ) from error


def _present(context: ssl.SSLContext, connection: Connection, cert_file: Path) -> None:
    """Load the client's certificate.  OpenSSL would ask the terminal for a missing password."""

    def password() -> str:
        if connection.key_password_file is None:
            raise ConnectionSettingsError(f"{key} is encrypted; set kafka.key_password_file")
        return secret("key_password_file", connection.key_password_file)

    key = connection.key_file or cert_file
    try:
        context.load_cert_chain(cert_file, connection.key_file, password)
    except ssl.SSLError as error:
        raise ConnectionSettingsError(
            f"kafka.cert_file and kafka.key_file: cannot use {cert_file} with the key in {key}; "
            f"they have to be PEM, fit each other, and the password has to be right "
            f"({error.reason or error.strerror})"
        ) from error


def _sasl_options(connection: Connection) -> dict[str, Any]:
    mechanism = connection.sasl_mechanism
    if mechanism is None:
        raise ConnectionSettingsError(
            f"kafka.security_protocol {connection.security_protocol} needs kafka.sasl_mechanism"
        )
    if mechanism == "OAUTHBEARER":
        path = _needed("sasl_token_file", connection.sasl_token_file, mechanism)
        secret("sasl_token_file", path)
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": FileToken(path)}
    username = _needed("sasl_username", connection.sasl_username, mechanism)
    file = _needed("sasl_password_file", connection.sasl_password_file, mechanism)
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": username,
        "sasl_plain_password": secret("sasl_password_file", file),
    }


def _needed(setting: str, value: T | None, mechanism: str) -> T:
    if value is None:
        raise ConnectionSettingsError(f"kafka.sasl_mechanism {mechanism} needs kafka.{setting}")
    return value
