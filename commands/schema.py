"""`schema`: the generated contracts of all topics."""

from pathlib import Path
from typing import Annotated

import typer

from commands.errors import UsageError
from schemas.contract import generated

GENERATED = Path(__file__).parents[1] / "schemas" / "generated"


def schema(
    check: Annotated[bool, typer.Option(help="Only tell whether the files are current.")] = False,
) -> None:
    """Write the JSON Schemas and the AsyncAPI document of all topics into the repository."""
    stale = [
        name
        for name, text in generated().items()
        if not (GENERATED / name).is_file() or (GENERATED / name).read_text("utf-8") != text
    ]
    if check and stale:
        raise UsageError(f"not current: {', '.join(stale)}; run `gpuvigil schema`")
    GENERATED.mkdir(exist_ok=True)
    for name in stale:
        (GENERATED / name).write_text(generated()[name], "utf-8")
    typer.echo(f"{len(generated())} files, {len(stale)} written")
