"""The program `gpuvigil`: every command, and what a fault looks like from outside."""

import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from commands import agent, alerts, broker, schema, state, topics, watch, worker
from commands.errors import UsageError
from streams.checkpoints import CheckpointError
from streams.outputs import TooManyFaultsError

app = typer.Typer(
    no_args_is_help=True,
    help="Watches GPUs as streams of events and says which are wasted, hung or leaking.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(watch.demo)
app.command()(watch.replay)
app.command()(watch.run)
app.command()(broker.broker)
app.add_typer(topics.app, name="topics")
app.command()(worker.worker)
app.command()(agent.agent)
app.add_typer(alerts.app, name="alerts")
app.add_typer(state.app, name="state")
app.command()(schema.schema)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"gpuvigil {installed_version('gpuvigil')}")
        raise typer.Exit


def _missing(error: ModuleNotFoundError) -> str:
    return f"this command needs the package {error.name}; install gpuvigil[all], or its role alone"


def main() -> None:
    """Run the command line; faults that the user can mend are one line and exit code 2."""
    try:
        app()
    except (UsageError, CheckpointError, TooManyFaultsError) as error:
        typer.echo(f"gpuvigil: {error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        typer.echo(f"gpuvigil: {_missing(error)}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        typer.echo(f"gpuvigil: {error.filename or 'cannot write'}: {error.strerror}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
