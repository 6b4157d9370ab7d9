"""Somebody edits the files at each fail point of a write: each counter moves exactly once, and no edit is lost.

An edit is either in the file or in a conflict copy that `doctor` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.changes import POINTS
from tests.faults.harness import World

pytestmark = pytest.mark.timeout(600)

IN_PLACE = """
import json, sys
for path in sys.argv[1:]:
    with open(path, "r+") as file:
        value = json.load(file)
        value["edits"] = value.get("edits", 0) + 1
        file.seek(0)
        file.truncate()
        json.dump(value, file, indent=2)
"""
RENAMED = """
import json, os, sys
for path in sys.argv[1:]:
    with open(path) as file:
        value = json.load(file)
    value["edits"] = value.get("edits", 0) + 1
    with open(path + "~", "w") as file:
        json.dump(value, file, indent=2)
    os.rename(path + "~", path)
"""
WAYS = {"in place": IN_PLACE, "renamed": RENAMED}


def edits_kept(world: World, path: str) -> int:
    """The edits that stand in a file, and those in conflict copies of it that `doctor` names."""
    value = json.loads((world.root / path).read_bytes())
    named = [row for row in world.doctor() if row["path"] == path and "conflict copy" in row["problem"]]
    copies = [copy for copy in world.conflict_copies() if copy.name.endswith(path.replace("/", "-"))]
    assert len(named) == len(copies)
    return int(value.get("edits", 0)) + len(copies)


def editor(world: World, way: str, *paths: str) -> str:
    """The command of an edit that happens once, however often its point is reached."""
    script = world.base / "edit.py"
    script.write_text(WAYS[way])
    once = world.base / "edited"
    files = " ".join(str(world.root / path) for path in paths)
    return f"run:mkdir {once} 2>/dev/null && python3 -I {script} {files} || true"


def run_edits(world: World, way: str, paths: tuple[str, ...], points: tuple[str, ...]) -> int:
    world.start()
    edits = 0
    for point in points:
        for number in (1, 2, 3, 4):
            once = world.base / "edited"
            command = editor(world, way, *paths)
            tag = f"{point}-{number}"
            world.arm(f"{point}:{number}={command}")
            world.call("two", tag)
            world.quiet()
            world.disarm()
            done = once.exists()
            if done:
                once.rmdir()
                edits += 1
            for path in ("a.json", "sub/b.json"):
                assert world.tags(path).count(tag) == 1, f"{path} after an edit at {point}:{number}"
            for path in paths:
                assert edits_kept(world, path) == edits, f"{path} after an edit at {point}:{number}"
            assert world.tags("a.json") == world.tags("sub/b.json")
            assert world.staging_names() == []
            if not done:
                break
    return edits


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "paths", [("a.json",), ("sub/b.json",), ("a.json", "sub/b.json")], ids=["first", "second", "both"]
)
def test_edited_anywhere(world: World, way: str, paths: tuple[str, ...]) -> None:
    world.write("a.json", '{"n": 0, "tags": []}')
    world.write("sub/b.json", '{"n": 0, "tags": []}')
    assert run_edits(world, way, paths, POINTS) > 15


LINE_EDITS: dict[str, Callable[[Path], str]] = {
    # a line added at the end, as a shell does
    "appended": lambda path: f'echo \'{{"tag":"person"}}\' >> {path}',
    # a line without its ending, as some editors leave it
    "unended": lambda path: f'printf \'{{"tag":"person"}}\' >> {path}',
    # a new file with one more line at its beginning
    "renamed": lambda path: f'(echo \'{{"tag":"person"}}\' && cat {path}) > {path}~ && mv {path}~ {path}',
}


@pytest.mark.parametrize("way", LINE_EDITS)
@pytest.mark.parametrize("operation", ["log", "mixed"])
def test_a_log_edited_anywhere(world: World, operation: str, way: str) -> None:
    world.write("a.json", '{"n": 0, "tags": []}')
    world.write("log.jsonl", '{"tag":"first"}\n')
    world.start()
    edits = 0
    for point in POINTS:
        for number in (1, 2, 3, 4):
            once = world.base / "edited"
            command = LINE_EDITS[way](world.root / "log.jsonl")
            world.arm(f"{point}:{number}=run:mkdir {once} 2>/dev/null && {command} || true")
            tag = f"{point}-{number}"
            world.call(operation, tag)
            world.quiet()
            world.disarm()
            done = once.exists()
            if done:
                once.rmdir()
                edits += 1
            lines = tags_of_lines(world)
            assert lines.count(tag) == 1, f"after an edit at {point}:{number}"
            assert lines.count("person") == edits, f"after an edit at {point}:{number}"
            if operation == "mixed":
                assert world.tags("a.json").count(tag) == 1
            assert world.staging_names() == []
            assert world.conflict_copies() == []
            if not done:
                break
    assert edits > 12


def tags_of_lines(world: World) -> list[Any]:
    """Every line parses; the last may lack its ending."""
    return [json.loads(line)["tag"] for line in (world.root / "log.jsonl").read_bytes().splitlines()]


def test_a_removed_file_is_made_again_from_what_is_known(world: World) -> None:
    """Somebody removes a file between the steps: the call runs again on what is left."""
    world.start()
    world.call("two", "before")
    world.arm(f"visible.before:2=run:rm {world.root}/sub/b.json")
    world.call("two", "after")
    world.disarm()

    assert world.tags("a.json") == ["before", "after"]
    assert world.tags("sub/b.json") == ["after"]


def test_an_edit_on_the_way_back_is_kept(world: World) -> None:
    """The first file is edited while it is visible, then the second, so that the first is taken back: what the edit
    took over from the call that runs again must not count twice."""
    world.start()
    world.call("two", "before")
    first, second = world.root / "a.json", world.root / "sub/b.json"
    script = world.base / "edit.py"
    script.write_text(RENAMED)
    world.arm(f"visible.after:1=run:python3 -I {script} {first} {second}")
    world.call("two", "after")
    world.disarm()

    assert world.tags("a.json") == world.tags("sub/b.json") == ["before", "after"]
    for path in (first, second):
        assert edits_kept(world, str(path.relative_to(world.root))) == 1


def test_edited_again_and_again_is_a_conflict(world: World) -> None:
    world.start()
    world.call("one", "before")
    from tests.faults.harness import Failed

    world.arm(f"visible.before=run:echo ' ' >> {world.root}/one.json")
    with pytest.raises(Failed) as told:
        world.call("one", "never")
    world.disarm()

    assert told.value.kind == "conflict"
    assert world.tags("one.json") == ["before"]
    world.call("one", "never")
    assert world.tags("one.json") == ["before", "never"]


SAVING = """
import os, sys, time
path, opened, go, done = sys.argv[1:]
with open(path, "r+") as file:
    open(opened, "w").close()
    while not os.path.exists(go):
        time.sleep(0.005)  # the poll of this wait
    file.truncate()
    file.write('{"n": 0, "tags": [], "person": true}')
open(done, "w").close()
"""


def test_an_editor_that_saves_into_the_displaced_file(world: World) -> None:
    """It opened the file before the call replaced it, and writes when the call is long answered."""
    import subprocess
    import sys

    from tests.faults.harness import wait_for

    world.start()
    world.call("one", "before")
    world.quiet()
    opened, go, done = (world.base / name for name in ("opened", "go", "done"))
    command = [sys.executable, "-I", "-c", SAVING, *map(str, (world.root / "one.json", opened, go, done))]
    with subprocess.Popen(command) as process:
        wait_for(opened.exists, "the editor has the file")
        world.call("one", "after")
        world.quiet()
        go.touch()
        assert process.wait(30) == 0
    wait_for(lambda: world.conflict_copies() and not world.staging_names(), "the copy of the late edit")

    assert world.tags("one.json") == ["before", "after"]
    assert b'"person": true' in world.conflict_copies()[0].read_bytes()
    assert ["conflict copy" in row["problem"] for row in world.doctor()] == [True]
