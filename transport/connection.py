"""How Kafka is reached: the addresses, the names in front of everything, TLS and SASL.

The model holds paths of secrets, never a secret: it can be printed and logged.  The secrets are
read by `client_options`, at the moment when a client is made.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from transport.contract import ConnectionSettingsError

MAX_PORT = 65536

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Connection(BaseModel):
    """One Kafka cluster and this installation's place in it: the group `kafka` of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap: str = "localhost:9092"
    """One or more brokers, host:port, separated by commas."""
    prefix: str = ""
    """Stands in front of the names of topics, groups and transactional ids."""
    client_id: str = "gpuvigil"
    """The name that brokers write into their logs and quotas."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: Path | None = None
    """PEM of the authorities that sign the brokers' certificates; None: those of the system."""
    cert_file: Path | None = None
    """PEM of this client's certificate, where brokers ask for one."""
    key_file: Path | None = None
    """PEM of its key; None: it stands in `cert_file`."""
    key_password_file: Path | None = None
    """A file that holds the password of the key, where the key is encrypted."""
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password_file: Path | None = None
    """A file that holds the password, for PLAIN and SCRAM."""
    sasl_token_file: Path | None = None
    """A file that holds the token, for OAUTHBEARER; read again for each connection."""

    def topic(self, name: str) -> str:
        """The name of a topic as this installation calls it."""
        return self.prefix + name

    def client_options(self) -> dict[str, Any]:
        """What producers, consumers and admin clients of aiokafka all take.

        Raises ConnectionSettingsError, which names the file or the setting that is wrong.
        """
        from transport.security import security_options  # noqa: PLC0415 - needs aiokafka

        return {
            "bootstrap_servers": self._servers(),
            "client_id": self.client_id,
            **security_options(self),
        }

    def _servers(self) -> list[str]:
        servers = [server.strip() for server in self.bootstrap.split(",") if server.strip()]
        if not servers:
            raise ConnectionSettingsError("kafka.bootstrap is empty; give host:port")
        for server in servers:
            host, _, port = server.rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < MAX_PORT):
                raise ConnectionSettingsError(f"kafka.bootstrap: {server!r} is not host:port")
        return servers
