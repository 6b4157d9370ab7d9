"""What an installation puts where: `.ci/run` installs from the sources, this looks at what the tests run in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from stated import __version__
from tests.conftest import CLIENTS, REPOSITORY

PROGRAMS = Path(sys.executable).parent


def editable() -> bool:
    text = metadata.distribution("stated").read_text("direct_url.json")
    return bool(text and json.loads(text).get("dir_info", {}).get("editable"))


@pytest.mark.parametrize("name", ["statectl", "bodhi-state"])
def test_the_installed_client_is_the_file_itself(name: str, stated_program: Path) -> None:
    installed = PROGRAMS / name

    assert os.access(installed, os.X_OK)
    assert not installed.is_symlink()
    assert installed.read_bytes()[:10] == (CLIENTS / name).read_bytes()[:10], "the first line is not what it was"
    if not editable():  # there the client is a copy of the day it was installed
        assert installed.read_bytes() == (CLIENTS / name).read_bytes()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    shown = subprocess.run([PROGRAMS / "stated", "--version"], capture_output=True, text=True, check=True, timeout=30)

    assert project["version"] == __version__
    assert shown.stdout.split()[-1] == __version__
    assert f'\nVERSION = "{__version__}"\n' in (CLIENTS / "statectl").read_text()


def test_every_library_that_is_imported_is_a_dependency_and_the_other_way_round() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = {text.split(">")[0] for text in project["dependencies"]}

    assert named == {"anyio", "jsonrpcserver", "msgspec", "orjson", "portalocker", "structlog", "watchfiles"}
    for name in named:
        assert any(name in path.read_text() for path in (REPOSITORY / "stated").rglob("*.py")), f"{name} is not used"
