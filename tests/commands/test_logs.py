"""Logs: one line for each record, whatever it holds."""

import json
import logging

from commands.logs import JsonLines, TextLines

HOSTILE = "a\nb\x1b[31mred\u2028end"


def record(*, trouble: bool = False) -> logging.LogRecord:
    fault = ZeroDivisionError("a fault")
    info = (type(fault), fault, None) if trouble else None
    return logging.LogRecord("streams.engine.engine", 30, "f.py", 1, "took %s", (HOSTILE,), info)


def test_text_is_one_line_for_hostile_names() -> None:
    line = TextLines().format(record())
    assert line.splitlines() == [line]
    assert "\x1b" not in line
    assert "Z warning engine: took a\\nb" in line


def test_json_is_one_object_with_the_text_as_it_is() -> None:
    line = JsonLines().format(record(trouble=True))
    assert line.splitlines() == [line]
    said = json.loads(line)
    assert said["message"] == f"took {HOSTILE}"
    assert (said["level"], said["logger"]) == ("warning", "streams.engine.engine")
    assert "ZeroDivisionError: a fault" in said["error"]


def test_a_fault_in_text_has_its_traceback() -> None:
    assert "ZeroDivisionError: a fault" in TextLines().format(record(trouble=True))
