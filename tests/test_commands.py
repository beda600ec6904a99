"""The Makefile and the installed command do what the documents say of them."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# An interpreter that refuses every installed package which requirements/base.txt does not name.
ON_BASE_ALONE = """
import importlib.metadata, sys
base = set(sys.argv[1].split(","))
class Refuse:
    owners = importlib.metadata.packages_distributions()
    def find_spec(self, name, path=None, target=None):
        owners = {o.lower().replace("_", "-") for o in self.owners.get(name.partition(".")[0], ())}
        if owners and not owners & base:
            raise ModuleNotFoundError(f"{name} is not in requirements/base.txt", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv[1:] = sys.argv[2:]
import gpuvigil
gpuvigil.main()
"""


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    outside = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=outside, capture_output=True, text=True, check=False
    )


def test_make_alone_prints_every_command() -> None:
    printed = re.findall(r"^  make (\w+) +\S", make().stdout, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert printed == re.findall(r"^\.PHONY: (\w+)$", makefile, re.MULTILINE)
    assert {"demo", "test", "check", "bench", "pins", "schema", "clean"} < set(printed)


def test_a_missing_python_is_one_clear_line(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    made = make(f"VENV={environment}", "PYTHON=no-such-python", f"{environment}/requirements")
    lines = [line for line in made.stderr.splitlines() if not line.startswith("make")]
    assert made.returncode == 2
    assert len(lines) == 1
    assert "needs Python 3.11, 3.12 or 3.13" in lines[0]
    assert "no-such-python" in lines[0]
    assert not environment.exists()


def test_the_version_stands_in_one_place() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    command = str(Path(sys.executable).with_name("gpuvigil"))
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert pyproject["project"]["version"] in printed.stdout.split()


def test_the_demonstration_runs_on_base_alone() -> None:
    pinned = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    base = ",".join([*re.findall(r"^([\w.-]+)==", pinned, re.MULTILINE), "gpuvigil"])
    command = [sys.executable, "-c", ON_BASE_ALONE, base, "demo", "--help"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
