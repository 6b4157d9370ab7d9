"""The README is true: its commands run, and every domain and its choices are in it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from stated import domains
from tests.conftest import CLIENTS, REPOSITORY, MakeHome

README = (REPOSITORY / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_set_up_is_two_lines_each_in_a_new_environment() -> None:
    first, second = blocks("sh")[0].splitlines()

    assert first.startswith("python3 -m venv ")
    assert "pip install ." in first
    assert "statectl" in first
    assert second.startswith("python3 -m venv ")
    assert "pip install '.[test]'" in second
    assert "pytest -n auto" in second
    assert first.split()[3] != second.split()[3]


def test_what_line_1_does_after_installing_works(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("daemon")
    steps = [step.strip() for step in blocks("sh")[0].splitlines()[0].split("&&")][2:]
    command = " && ".join(step.replace(".venv/bin/statectl", f"{CLIENTS / 'statectl'} --timeout 30") for step in steps)
    done = subprocess.run(
        ["sh", "-c", command], env=home.env, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert '"demo"' in done.stdout


def test_the_five_minutes_run_as_they_stand(make_home: MakeHome, tmp_path: Path) -> None:
    """Every command of the blocks marked `console`, in order, in one home; they must exit as the block says."""
    home = make_home("daemon")
    (tmp_path / "statectl").write_text(f'#!/bin/sh\nexec {shlex.quote(str(CLIENTS / "statectl"))} --timeout 30 "$@"\n')
    (tmp_path / "statectl").chmod(0o755)
    env = home.env | {"PATH": f"{tmp_path}:{home.env['PATH']}"}
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    assert len(commands) > 5
    wrong = []
    for line in commands:
        command, _, note = line.removeprefix("$ ").partition("   # exit ")
        done = subprocess.run(["sh", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        if done.returncode != int(note or 0):
            wrong.append(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    assert wrong == []


def test_every_domain_and_each_of_its_choices_is_in_the_readme() -> None:
    for domain in domains.load():
        assert f"### {domain.title}" in README
        missing = [title for title in domain.notes if title.lower() not in README.lower()]
        assert missing == [], f"choices of {domain.name} that the README does not tell"
