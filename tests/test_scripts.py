"""Runs `scripts/*.test`: what a caller types and what is printed, through a daemon and in local mode.

A script is a text file. `$ ` begins a command (for `sh`, in a folder of its own, with `statectl` and `bodhi-state` on
the path) and `> ` a further line of it; what follows, up to the next command, is what it prints:

    plain lines     standard output, a line each
    ! line          standard error
    [exit N]        the exit status, where it is not 0

`...` alone stands for any number of lines. In a line these stand for what changes from run to run: `<n>` a number,
`<id>` a call's id, `<sha>` a `sha256:` revision, `<date>`, `<stamp>` (UTC), `<home>` the home's path, `<version>` ours,
`<any>` anything in one line. `# ` begins a comment; a line `# only: daemon` (or `local`) runs it in that mode alone.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stated import __version__
from tests.conftest import CLIENTS, Home, MakeHome, Mode

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.test"))

PATTERNS = {
    "n": r"\d+",
    "id": r"[0-9A-Za-z_.:-]+",
    "sha": r"sha256:[0-9a-f]{64}",
    "date": r"\d{4}-\d{2}-\d{2}",
    "stamp": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z",
    "version": re.escape(__version__),
    "any": r"[^\n]*?",
}


@dataclass
class Step:
    line: int
    command: str
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    status: int = 0


def parse(text: str) -> tuple[list[Step], tuple[Mode, ...]]:
    steps: list[Step] = []
    modes: tuple[Mode, ...] = ("daemon", "local")
    for number, line in enumerate(text.splitlines(), 1):
        status = re.fullmatch(r"\[exit (\d+)\]", line)
        if line.startswith("# only: "):
            mode = line.removeprefix("# only: ")
            modes = ("daemon",) if mode == "daemon" else ("local",)
        elif line.startswith("# ") or not line:
            continue
        elif line.startswith("$ "):
            steps.append(Step(number, line.removeprefix("$ ")))
        elif line.startswith("> "):
            steps[-1].command += "\n" + line.removeprefix("> ")
        elif status:
            steps[-1].status = int(status[1])
        elif line.startswith("! "):
            steps[-1].err.append(line.removeprefix("! "))
        else:
            steps[-1].out.append(line)
    return steps, modes


def matches(expected: list[str], printed: str, home: Path) -> bool:
    pattern = ""
    for line in expected:
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
            continue
        parts = re.split(r"<(\w+)>", line)
        for at, part in enumerate(parts):
            if at % 2 == 0:
                pattern += re.escape(part)
            elif part == "home":
                pattern += re.escape(str(home))
            else:
                pattern += PATTERNS.get(part) or re.escape(f"<{part}>")
        pattern += r"\n"
    return re.fullmatch(pattern, printed) is not None


def run(step: Step, home: Home, programs: Path, folder: Path) -> str:
    """What differs, or nothing."""
    env = home.env | {"PATH": f"{programs}:{home.env['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", step.command],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    agrees = (
        matches(step.out, done.stdout, home.path)
        and matches(step.err, done.stderr, home.path)
        and done.returncode == step.status
    )
    if agrees:
        return ""
    printed = done.stdout + "".join(f"! {line}\n" for line in done.stderr.splitlines())
    return f"line {step.line}: $ {step.command}\n{printed}[exit {done.returncode}]"


def cases() -> list[object]:
    rows: list[object] = []
    for path in SCRIPTS:
        _, modes = parse(path.read_text())
        rows += [pytest.param(path, mode, id=f"{path.stem}-{mode}") for mode in modes]
    return rows


@pytest.mark.parametrize(("script", "mode"), cases())
def test_script(script: Path, mode: Mode, make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home(mode)
    programs, folder = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    folder.mkdir()
    flags = "--timeout 30" + (" --local" if mode == "local" else "")
    (programs / "statectl").write_text(f'#!/bin/sh\nexec {shlex.quote(str(CLIENTS / "statectl"))} {flags} "$@"\n')
    (programs / "statectl").chmod(0o755)
    (programs / "bodhi-state").symlink_to(CLIENTS / "bodhi-state")
    steps, _ = parse(script.read_text())

    assert steps
    assert [text for step in steps if (text := run(step, home, programs, folder))] == []


def test_the_language_of_the_scripts(tmp_path: Path) -> None:
    steps, modes = parse("# only: local\n$ a\n> b\nout <n>\n...\n! err\n[exit 3]\n\n$ c\n")

    assert modes == ("local",)
    assert steps == [Step(2, "a\nb", ["out <n>", "..."], ["err"], 3), Step(9, "c")]
    assert matches(["a <n>", "...", "b"], "a 12\nx\ny\nb\n", tmp_path)
    assert not matches(["a <n>"], "a 12\nx\n", tmp_path)
    assert matches(["<home>/x <tag>"], f"{tmp_path}/x <tag>\n", tmp_path)
