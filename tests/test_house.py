"""The rooms keep to the laws and measures of CONTRIBUTING.md that no linter checks.

Who breaks one of these tests has found a slip, or means to change a rule; then the rule's place is
changed in the same commit.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from re import compile as pattern
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [name.replace(".", "/") for name in PYPROJECT["tool"]["setuptools"]["packages"]]

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

HIDDEN_BUT_OURS = {".ci", ".github", ".gitignore"}
LEFT_BY_TOOLS = {"__pycache__", "build", "dist", "gpuvigil.egg-info", "htmlcov", "kafka-data"}

# In parts, so that this file does not name what it forbids.
INDEX_HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"))]
HOME_PATH = pattern(r"(?<![\w.$}~/-])/(?:home|root|Users|work)/\w")


def files(folder: Path = ROOT) -> Iterator[Path]:
    """The files of the repository, found without git: a source archive has none."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in HIDDEN_BUT_OURS
        if hidden or path.name in LEFT_BY_TOOLS:
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def texts() -> Iterator[tuple[Path, str]]:
    for path in files():
        content = path.read_bytes()
        if b"\0" not in content:
            yield path.relative_to(ROOT), content.decode("utf-8", errors="replace")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def product_modules() -> list[Path]:
    """Every module that is not a test."""
    return [path for path in files() if path.suffix == ".py" and ROOT / "tests" not in path.parents]


def shells() -> set[str]:
    """The modules of streams that drive, wait and store: the exceptions of its import contract."""
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (c for c in contracts if c.get("source_modules") == ["streams.*"])
    return {line.split(" -> ")[0].removesuffix(".*") for line in contract["ignore_imports"]}


def operators() -> list[Path]:
    modules = sorted((ROOT / "streams").glob("*.py"))
    return [path for path in modules if f"streams.{path.stem}" not in shells()]


def imported(path: Path) -> set[str]:
    """Every dotted name that a module imports; `from a import b` counts as `a` and as `a.b`."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def function_lines(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield node.name, node.end_lineno - node.lineno + 1


def test_modules_are_short() -> None:
    lines = {path.name: len(path.read_bytes().splitlines()) for path in product_modules()}
    assert {name: count for name, count in lines.items() if count > MODULE_LINES_MAX} == {}


def test_functions_are_short() -> None:
    for path in product_modules():
        long = {name: n for name, n in function_lines(path) if n > FUNCTION_LINES_MAX}
        assert long == {}, path


def test_operators_import_no_shell() -> None:
    """import-linter ignores what the shells import, so a way through them would be open."""
    assert {path.stem: found for path in operators() if (found := imported(path) & shells())} == {}


def test_operators_read_no_clock_and_no_file() -> None:
    """These calls need no import, or share one with innocent names."""
    forbidden = {"now", "utcnow", "today", "open", "print", "input"}
    for path in operators():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
                assert name not in forbidden, f"{path.name}:{node.lineno}: {name}()"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_states_its_law(package: str) -> None:
    docstring = ast.get_docstring(tree(ROOT / package / "__init__.py")) or ""
    assert "The law:" in docstring


@pytest.mark.parametrize("room", [*PACKAGES, "benchmarks", "deploy", "tests"])
def test_every_room_is_on_the_map(room: str) -> None:
    assert f"| `{room}/` |" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_tests_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_no_file_names_a_package_index() -> None:
    assert [path for path, text in texts() if any(host in text for host in INDEX_HOSTS)] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [path for path, text in texts() if HOME_PATH.search(text)] == []


@pytest.mark.parametrize("template", ["/{}/a", "see /{}/a", '"/{}/a"', "file:/{}/a"])
def test_a_path_of_one_machine_is_recognised(template: str) -> None:
    assert HOME_PATH.search(template.format("home"))
