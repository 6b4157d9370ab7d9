"""The journal is deleted at each fail point: nothing in a file becomes wrong, nothing is double, the next calls
work."""

from __future__ import annotations

import pytest

from tests.faults.changes import KINDS, POINTS
from tests.faults.harness import Failed, World

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("operation", ["two", "mixed", "remember", "roots"])
def test_deleted_anywhere(world: World, operation: str) -> None:
    kind = KINDS[operation]
    kind.before(world)
    world.start()
    folder = world.home / ".local" / "state" / "stated"
    hits = 0
    for point in POINTS:
        for number in (1, 2, 3):
            hit = world.base / "hit"
            tag = f"{point}-{number}"
            world.arm(f"{point}:{number}=run:rm -f {folder}/journal.db* && touch {hit}")
            try:
                world.call(operation, tag)
                answer = "done"
            except Failed as failed:
                answer = failed.kind
            assert answer in ("done", "unavailable", "unknown_outcome"), f"deleted at {point}:{number}"
            world.quiet()
            world.disarm()
            reached = hit.exists()
            hit.unlink(missing_ok=True)
            hits += reached
            counts = files_only(kind.counts(world, tag), operation)
            assert counts in ([0] * len(counts), [1] * len(counts)), f"half done: deleted at {point}:{number}"
            assert counts[0] == 1 or answer != "done", f"answered and not there: deleted at {point}:{number}"
            after = f"after-{tag}"
            world.call(operation, after)
            world.call(operation, after)
            assert files_only(kind.counts(world, after), operation) == [1] * len(counts)
            world.quiet()
            assert world.staging_names() == []
            assert world.doctor() == []
            if not reached:
                break
    assert hits > 12
    # A daemon that starts on the journal made meanwhile finds nothing to do.
    world.restart()
    world.call(operation, "last")
    counts = kind.counts(world, "last")
    assert counts == [1] * len(counts)
    assert world.doctor() == []


def files_only(counts: list[int], operation: str) -> list[int]:
    """Memory documents go with the journal, as their description says."""
    return counts[:1] if operation == "remember" else counts


def test_deleted_while_nobody_ran(world: World) -> None:
    world.start()
    for number in range(3):
        world.call("mixed", f"{number}")
    world.kill()
    for path in world.journal_files():
        path.unlink()
    world.start()
    world.call("mixed", "after")

    assert world.lines() == world.tags("a.json") == ["0", "1", "2", "after"]
    assert world.doctor() == []


def test_only_the_database_deleted_and_its_log_left(world: World) -> None:
    """SQLite must not bring the old write-ahead log into the new database."""
    world.start()
    world.call("two", "before")
    world.kill()
    (world.home / ".local" / "state" / "stated" / "journal.db").unlink()
    world.start()
    world.call("two", "after")

    assert world.tags("a.json") == world.tags("sub/b.json") == ["before", "after"]


def test_the_journal_of_yesterday(world: World) -> None:
    """A backup of the journal is put back: what it remembers as under way must not be redone."""
    import shutil

    world.start()
    world.call("two", "before")
    world.stop()
    folder = world.home / ".local" / "state" / "stated"
    backup = world.base / "backup"
    shutil.copytree(
        folder, backup, ignore=lambda path, names: [name for name in names if not name.startswith("journal")]
    )
    world.start()
    world.call("two", "later")
    world.stop()
    for path in world.journal_files():
        path.unlink()
    for path in backup.iterdir():
        shutil.copy(path, folder / path.name)
    world.start()
    world.call("two", "after")

    assert world.tags("a.json") == world.tags("sub/b.json") == ["before", "later", "after"]
    assert world.staging_names() == []
