"""The kinds of change, each with what it needs beforehand and where its tag stands afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.harness import World

POINTS = (
    "load.before",
    "load.after",
    "load.outside",
    "stage.before",
    "stage.after",
    "stage.sync",
    "journal.begin",
    "commit.before",
    "journal.commit",
    "journal.committed",
    "commit.after",
    "visible.before",
    "visible.checked",
    "visible.exchanged",
    "visible.after",
    "answer.before",
    "checkpoint.before",
    "checkpoint.sync",
    "checkpoint.folder",
    "checkpoint.durable",
)
"""Every place of a write's way, in its order."""


def _nothing(world: World) -> None:
    pass


def _open_line(world: World) -> None:
    path = world.root / "marks.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write('{"tag": "line", "state": "open"}\n')


def _file_to_delete(world: World) -> None:
    if not (world.root / "gone.json").exists():
        world.write("gone.json", '{"n": 0}\n')


def _folder_to_move(world: World) -> None:
    if not (world.root / "from").exists():
        world.write("from/inner.txt", "inner\n")


def _marks(world: World, tag: str) -> int:
    path = world.root / "marks.jsonl"
    return path.read_text().count(f'"state": "{tag}"') + path.read_text().count(f'"state":"{tag}"')


def _in(path: str, suffix: str = "") -> Callable[[World, str], int]:
    return lambda world, tag: world.tags(path, world.root.with_name("trial" + suffix)).count(tag)


def _made(world: World, tag: str) -> int:
    return int((world.root / "made" / f"{tag}.json").exists())


def _logged(world: World, tag: str) -> int:
    return world.lines().count(tag)


def _folder(world: World, tag: str) -> int:
    base = world.root / "folders" / tag
    assert base.exists() == (base / "state.json").exists() == (base / "deep" / "more.json").exists()
    return int(base.exists())


def _moved(world: World, tag: str) -> int:
    return int((world.root / "moved" / tag / "inner.txt").exists())


def _remembered(world: World, tag: str) -> int:
    return int(world.show()["tags"].count(tag))


@dataclass(frozen=True)
class Kind:
    operation: str
    places: tuple[Callable[[World, str], int], ...]
    """How often a tag stands in each place that the operation changes."""
    before: Callable[[World], None] = _nothing
    once: Callable[[World], bool] = lambda world: True
    """For a change that takes something away: whether it is still there (a call that was not done left it)."""

    def counts(self, world: World, tag: str) -> list[int]:
        return [place(world, tag) for place in self.places]


KINDS = {
    kind.operation: kind
    for kind in (
        Kind("one", (_in("one.json"),)),
        Kind("two", (_in("a.json"), _in("sub/b.json"))),
        Kind("create", (_made,)),
        Kind("log", (_logged,)),
        Kind("mixed", (_in("a.json"), _made, _logged)),
        Kind("mark", (_in("a.json"), _marks), _open_line),
        Kind("delete", (_in("a.json"),), _file_to_delete),
        Kind("folder", (_in("a.json"), _folder)),
        Kind("move", (_in("a.json"), _moved), _folder_to_move),
        Kind(
            "roots",
            (_in("a.json"), _in("b.json", "-second")),
            lambda world: (world.home / "trial-second").mkdir(exist_ok=True),
        ),
        Kind("remember", (_in("a.json"), _remembered)),
    )
}
