"""What is installed is pinned, hashed, as small as its role, and there for a reason."""

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROLES: dict[str, list[str]] = {
    "base": PYPROJECT["project"]["dependencies"],
    **PYPROJECT["project"]["optional-dependencies"],
    **PYPROJECT["dependency-groups"],
}
NOT_INSTALLED_FROM = "constraints"
PINNED = sorted(p for p in (ROOT / "requirements").glob("*.txt") if p.stem != NOT_INSTALLED_FROM)
EXTRAS = r"(?:\[[\w,-]+\])?"
BLOCK = re.compile(rf"[\w.-]+{EXTRAS}==[^\s;]+( ; [^#]+?)?(\s+--hash=sha256:[0-9a-f]{{64}})+\s*")
INDEX_OPTION = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host|^-[if] ", re.MULTILINE)


def asked_for() -> dict[str, set[str]]:
    """Each dependency of pyproject.toml with the roles and groups that ask for it."""
    found: dict[str, set[str]] = {}
    for role, lines in ROLES.items():
        for requirement in map(Requirement, lines):
            if requirement.name != PYPROJECT["project"]["name"]:
                found.setdefault(requirement.name, set()).add(role)
    return found


def pins(role: str) -> dict[str, set[str]]:
    """The packages of a requirements file; one may differ in version between Pythons."""
    text = (ROOT / "requirements" / f"{role}.txt").read_text(encoding="utf-8")
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(rf"^([\w.-]+){EXTRAS}==([^\s;\\]+)", text, re.MULTILINE):
        versions.setdefault(name, set()).add(version)
    return versions


def test_every_role_has_its_file() -> None:
    assert {path.stem for path in PINNED} == ROLES.keys()


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.stem)
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    blocks = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert blocks
    assert [block for block in blocks if not BLOCK.fullmatch(block)] == []


def test_an_extra_that_a_package_asks_for_is_pinned_by_its_name() -> None:
    """Otherwise an older pip passes the pin by as soon as a newer release is out."""
    text = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    pinned = {
        Requirement(line).name: Requirement(line).extras
        for line in re.findall(rf"^[\w.-]+{EXTRAS}==[^\s;\\]+", text, re.MULTILINE)
    }
    asked = [
        Requirement(line)
        for package in distributions()
        if package.name in pinned
        for line in package.requires or ()
    ]
    wanted = [one for one in asked if one.extras and one.name in pinned and _holds_here(one)]
    assert wanted, "pytest-cov asks for coverage[toml]"
    assert [str(one) for one in wanted if not one.extras <= pinned[one.name]] == []


def _holds_here(requirement: Requirement) -> bool:
    """Whether it is asked for in this environment, without any extra of the package that asks."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.stem)
def test_no_file_chooses_an_index(path: Path) -> None:
    assert not INDEX_OPTION.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", ROLES)
def test_pins_follow_pyproject(role: str) -> None:
    pinned = pins(role)
    for requirement in map(Requirement, ROLES[role]):
        if requirement.name != PYPROJECT["project"]["name"]:
            assert pinned[requirement.name], requirement
            assert all(map(requirement.specifier.contains, pinned[requirement.name])), requirement


def test_files_agree_on_versions() -> None:
    everything = pins(NOT_INSTALLED_FROM)
    for path in PINNED:
        for name, versions in pins(path.stem).items():
            assert versions <= everything[name], (path.stem, name)


def test_a_node_carries_no_detector_engine_or_archive() -> None:
    heavy = {"river", "faust-streaming", "mode-streaming", "pyarrow", "numpy", "scipy", "pandas"}
    assert heavy & pins("agent").keys() == set()
    assert heavy & pins("sinks").keys() == set()


def test_base_holds_no_package_of_a_role() -> None:
    of_roles = {name for name, roles in asked_for().items() if "base" not in roles}
    assert of_roles & pins("base").keys() == set()


@pytest.mark.parametrize("role", PYPROJECT["project"]["optional-dependencies"])
def test_a_role_adds_to_base(role: str) -> None:
    assert pins("base").items() <= pins(role).items()


def test_every_dependency_has_its_reason() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([a-z, ]+) \| \S.+ \|$", text, re.MULTILINE)
    assert {name: set(roles.split(", ")) for name, roles in rows} == asked_for()
