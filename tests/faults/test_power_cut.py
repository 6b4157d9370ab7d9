"""The power is cut under load: every call that was acknowledged by then is there when the state is opened again."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
from collections.abc import Iterator

import pytest

from tests.faults.harness import Failed, Lost, World, wait_for
from tests.faults.power_cut import Disk, disk, why_not

pytestmark = pytest.mark.timeout(900)

KINDS = ("ext4", "xfs", "btrfs")
OPERATIONS = ("two", "log", "mixed", "one", "create", "remember", "folder")


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[tuple[Disk, World]]:
    """A disk that holds a HOME, and a daemon's world on it."""
    kind = request.param
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    with disk(kind) as made:
        world = World(made.path / "home")
        try:
            yield made, world
        finally:
            world.close()


class Load(threading.Thread):
    """Calls, one after the other; what was acknowledged is written down after its answer came."""

    def __init__(self, world: World, name: str, operations: tuple[str, ...]) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.prefix = name
        self.operations = operations
        self.connection = world.connect()
        self.acknowledged: list[tuple[str, str]] = []
        self.asked: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        for number in itertools.count():
            if self.enough.is_set():
                return
            operation = self.operations[number % len(self.operations)]
            tag = f"{self.prefix}-{number}"
            self.asked.append((operation, tag))
            try:
                self.connection.call(f"trial.{operation}", {"tag": tag, "_meta": {"call": tag}})
            except (Lost, OSError):
                return
            except Failed as failed:
                self.problems.append(f"{operation} {tag}: {failed.error}")
                return
            self.acknowledged.append((operation, tag))


def where(world: World, operation: str, tag: str, files: dict[str, list[str]]) -> list[int]:
    match operation:
        case "two":
            return [files["a.json"].count(tag), files["sub/b.json"].count(tag)]
        case "log":
            return [files["log"].count(tag)]
        case "mixed":
            return [files["a.json"].count(tag), files["log"].count(tag), int(made(world, tag))]
        case "one":
            return [files["one.json"].count(tag)]
        case "create":
            return [int(made(world, tag))]
        case "remember":
            return [files["a.json"].count(tag), files["memory"].count(tag)]
        case _:
            folder = world.root / "folders" / tag
            return [
                files["a.json"].count(tag),
                int((folder / "state.json").exists()),
                int((folder / "deep/more.json").exists()),
            ]


def made(world: World, tag: str) -> bool:
    path = world.root / "made" / f"{tag}.json"
    return path.exists() and tag in path.read_text()


def contents(world: World) -> dict[str, list[str]]:
    files = {path: world.tags(path) for path in ("a.json", "sub/b.json", "one.json")}
    return files | {"log": world.lines(), "memory": world.show()["tags"]}


def cut_once(machine: tuple[Disk, World], name: str, moment: random.Random) -> None:
    made_disk, world = machine
    world.start()
    if moment.random() < 0.5:
        # Without a checkpoint nothing but the journal brings the files back.
        world.arm("checkpoint.before=error:EIO")
    loads = [Load(world, f"{name}-{number}", OPERATIONS[number:] + OPERATIONS[:number]) for number in range(4)]
    for load in loads:
        load.start()
    enough = moment.randrange(1, 400)
    wait_for(lambda: sum(len(load.acknowledged) for load in loads) >= enough, "the instant of the cut")
    acknowledged: list[tuple[str, str]] = []

    def pause() -> None:
        world.pause()
        for load in loads:
            acknowledged.extend(load.acknowledged)

    def release() -> None:
        for load in loads:
            load.enough.set()
        world.kill()
        for load in loads:
            load.join(30)

    made_disk.cut(pause, release)
    assert [problem for load in loads for problem in load.problems] == []
    world.start()
    world.call("one", f"{name}-opens-it")
    files = contents(world)
    missing = [
        (operation, tag, found)
        for operation, tag in acknowledged
        if (found := where(world, operation, tag, files)) != [1] * len(found)
    ]
    assert missing == [], f"of {len(acknowledged)} acknowledged"
    for load in loads:
        for operation, tag in load.asked:
            found = where(world, operation, tag, files)
            assert found in ([0] * len(found), [1] * len(found)), (operation, tag)
    # What got no answer is repeated with its id.
    for load in loads:
        for operation, tag in load.asked:
            world.call(operation, tag)
    files = contents(world)
    for load in loads:
        for operation, tag in load.asked:
            assert set(where(world, operation, tag, files)) == {1}, (operation, tag)
    world.quiet()
    assert world.staging_names() == []
    assert world.doctor() == []
    world.stop()
    for base in world.home.glob("trial*"):
        shutil.rmtree(base)
    for path in (world.home / ".local").rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("machine", KINDS, indirect=True)
def test_cut_under_load(machine: tuple[Disk, World]) -> None:
    moment = random.Random(1)
    for number in range(4):
        cut_once(machine, f"cut{number}", moment)


@pytest.mark.slow
@pytest.mark.parametrize("machine", KINDS, indirect=True)
def test_cut_very_often(machine: tuple[Disk, World]) -> None:
    moment = random.Random()
    for number in range(100):
        cut_once(machine, f"cut{number}", moment)


@pytest.mark.parametrize("machine", ["ext4"], indirect=True)
def test_an_edit_after_the_cut_stays(machine: tuple[Disk, World]) -> None:
    """Somebody edits a file before the state is opened: theirs stays, ours is in a conflict copy; the other file comes
    back."""
    made_disk, world = machine
    world.start()
    world.call("two", "before")
    world.quiet()
    world.arm("checkpoint.before=wait:/nowhere")
    world.call("two", "acknowledged")
    made_disk.cut(world.pause, world.kill)
    (world.root / "a.json").write_text('{"n": 0, "tags": [], "person": true}\n')
    world.start()
    world.call("one", "opens-it")

    assert (world.root / "a.json").read_text() == '{"n": 0, "tags": [], "person": true}\n'
    assert world.tags("sub/b.json") == ["before", "acknowledged"]
    assert b'"acknowledged"' in world.conflict_copies()[0].read_bytes()
    assert [row["path"] for row in world.doctor()] == ["a.json"]
