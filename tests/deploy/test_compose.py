"""The compose file and the image say nothing that the program and the project don't know.

Read by patterns and not as YAML: no package is needed for that, and both files are kept plain.
"""

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from commands.settings import Settings
from gpuvigil import app

if TYPE_CHECKING:
    from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
SERVICE = re.compile(r"^  (\w+):\n((?:(?:    .*)?\n|  #.*\n)*)", re.MULTILINE)
SERVICES = dict(SERVICE.findall(COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:")[0]))
COMMANDS = {
    name: json.loads(found[1])
    for name, text in SERVICES.items()
    if (found := re.search(r"^    command: (\[.*\])$", text, re.MULTILINE))
}


def parse(arguments: list[str]) -> None:
    """Let the program read a command line and begin nothing.  Raises what its parser raises."""
    command: Any = typer.main.get_command(app)
    rest = list(arguments)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context("gpuvigil", rest)


def copied() -> list[str]:
    """What the image copies out of the project."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def is_setting(variable: str) -> bool:
    model: type[BaseModel] = Settings
    *groups, last = variable.removeprefix("GPUVIGIL_").lower().split("__")
    for group in groups:
        field = model.model_fields.get(group)
        if field is None or not isinstance(field.annotation, type):
            return False
        model = field.annotation
    return last in model.model_fields


def test_the_services() -> None:
    assert list(SERVICES) == ["kafka", "topics", "worker", "agent", "alerts"]
    assert list(COMMANDS) == ["topics", "worker", "agent", "alerts"]
    assert "--simulated" in COMMANDS["agent"]
    assert COMMANDS["topics"][-4:] == ["--replication", "1", "--partitions", "4"]


@pytest.mark.parametrize("service", COMMANDS)
def test_the_program_accepts_every_command_line(service: str) -> None:
    parse(COMMANDS[service])


@pytest.mark.parametrize(
    "wrong", [["topics", "create", "--copies", "1"], ["agent", "--speed", "fast"]]
)
def test_a_wrong_command_line_would_be_noticed(wrong: list[str]) -> None:
    with pytest.raises(Exception, match=r"--copies|valid number"):
        parse(wrong)


def test_every_variable_is_a_setting() -> None:
    variables = re.findall(r"^\s+(GPUVIGIL_\w+):", COMPOSE, re.MULTILINE)
    assert variables == ["GPUVIGIL_KAFKA__BOOTSTRAP"]
    assert all(map(is_setting, variables))
    assert not is_setting("GPUVIGIL_KAFKA__SERVERS")
    assert not is_setting("GPUVIGIL_BROKER__BOOTSTRAP")
    address = re.search(r"GPUVIGIL_KAFKA__BOOTSTRAP: (.+)", COMPOSE)
    assert address is not None
    assert f"INTERNAL://{address[1]}," in SERVICES["kafka"]


def test_every_file_exists() -> None:
    context, dockerfile = (
        re.search(rf"^    {name}: (.+)$", COMPOSE, re.MULTILINE)
        for name in ("context", "dockerfile")
    )
    assert context is not None
    assert dockerfile is not None
    assert (ROOT / context[1] / dockerfile[1]).is_file()
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    named = re.findall(r"requirements/\w+\.txt", DOCKERFILE)
    assert set(named) == {"requirements/all.txt", "requirements/build.txt"}
    assert DOCKERFILE.count("--require-hashes") == 2


def test_the_image_gets_every_package_and_sees_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name.partition(".")[0] for name in settings["tool"]["setuptools"]["packages"]}
    project = settings["project"]
    wanted = packages | {"gpuvigil.py", "pyproject.toml", project["readme"]}
    assert wanted | set(project["license-files"]) <= set(copied())
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    seen = [one.removeprefix("!") for one in patterns if one.startswith("!")]
    assert [name for name in copied() if not any(fnmatch(name, one) for one in seen)] == []
    assert sorted(seen) == sorted(copied())


def test_what_may_run_twice_takes_no_port_of_the_machine() -> None:
    assert [name for name, text in SERVICES.items() if "ports:" in text] == ["kafka"]
    assert not any("container_name:" in text for text in SERVICES.values())


def test_images_are_pinned_and_kafka_is_the_release_of_the_tests() -> None:
    images = re.findall(r"^\s*(?:image:|FROM) (\S+)", COMPOSE + DOCKERFILE, re.MULTILINE)
    assert [image for image in images if ":" not in image or image.endswith(":latest")] == []
    release = re.search(r"kafka_[\d.]+:([\d.]+)", (ROOT / "requirements/pin_jars.py").read_text())
    assert release is not None
    assert f"apache/kafka:{release[1]}" in images


def test_nothing_of_ours_runs_as_root() -> None:
    user = re.search(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0
    assert DOCKERFILE.index("\nUSER ") < DOCKERFILE.index('\nENTRYPOINT ["gpuvigil"]')
    assert all("<<: *gpuvigil" in SERVICES[name] for name in COMMANDS)
    assert "read_only: true" in COMPOSE.partition("\nservices:\n")[0]
