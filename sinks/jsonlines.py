"""Alert events as JSON lines: one event, one line."""

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from schemas.alerts import AlertEvent


class AlertLines:
    """Writes each event to a text stream at once.  Strings from outside stay escaped JSON."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, event: "AlertEvent") -> None:
        """One line, flushed, so that a reader in a pipe sees it now."""
        self._out.write(event.model_dump_json(ensure_ascii=True) + "\n")
        self._out.flush()
