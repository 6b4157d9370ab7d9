"""EIO and ENOSPC at each fail point: the answer is true, the daemon lives, and the next write works."""

from __future__ import annotations

import pytest

from tests.faults.changes import KINDS, POINTS
from tests.faults.harness import Failed, World

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("operation", ["two", "mixed", "delete", "folder", "move", "roots", "remember"])
def test_an_error_anywhere(world: World, operation: str, error: str) -> None:
    kind = KINDS[operation]
    world.start()
    pid = world.process.pid if world.process is not None else 0
    kind.before(world)
    world.call(operation, "begin")
    hits = 0
    for point in POINTS:
        for number in (1, 2, 3, 0):
            tag = f"{point}-{number}"
            kind.before(world)
            # 0: every time, so that the second try of the same call meets it as well
            world.arm(f"{point}{f':{number}' if number else ''}=error:{error}")
            try:
                world.call(operation, tag)
                answer = "done"
            except Failed as failed:
                answer = failed.kind
                hits += 1
            world.disarm()
            where = f"{error} at {point}:{number}, answered {answer}"
            assert answer in ("done", "unavailable", "unknown_outcome", "internal"), where
            if answer == "done":
                assert set(kind.counts(world, tag)) == {1}, where
            elif answer != "unknown_outcome":
                assert set(kind.counts(world, tag)) == {0}, where
            world.call(operation, tag)
            assert set(kind.counts(world, tag)) == {1}, f"{where}; the repeat doubled or was not done"
            kind.before(world)
            world.call(operation, f"after-{tag}")
            assert set(kind.counts(world, f"after-{tag}")) == {1}, where
            world.quiet()
            assert world.staging_names() == [], where
            assert world.conflict_copies() == [], where
            assert world.doctor() == [], where
    assert hits > 10
    assert world.process is not None
    assert world.process.pid == pid
    assert world.process.poll() is None
    # And what is there now is what a new daemon finds.
    world.restart()
    assert world.doctor() == []


def test_a_failed_commit_that_came_through_is_not_done_behind_the_callers_back(world: World) -> None:
    """COMMIT reports an error, and the daemon dies before it can void it: the repeat decides."""
    world.start()
    world.call("two", "before")
    world.arm("journal.committed:1=error:EIO;journal.begin:2=kill")
    from tests.faults.harness import Lost

    with pytest.raises(Lost):
        world.call("two", "doubtful")
    world.ended()
    world.start()
    world.call("two", "doubtful")

    assert world.tags("a.json") == world.tags("sub/b.json") == ["before", "doubtful"]
    world.quiet()
    assert world.staging_names() == []
    assert world.doctor() == []


@pytest.mark.parametrize("operation", ["create", "two", "folder"])
def test_unknown_and_then_killed(world: World, operation: str) -> None:
    """A commit that failed but is there, and a journal that stays broken: the answer is unknown; after a kill the call
    comes to life with the commit, and the repeat finds it done."""
    kind = KINDS[operation]
    world.start()
    world.call("one", "before")
    world.arm("journal.committed:1=error:EIO;" + ";".join(f"journal.begin:{n}=error:EIO" for n in range(2, 60)))
    with pytest.raises(Failed) as told:
        world.call(operation, "doubtful")
    assert told.value.kind == "unknown_outcome"
    world.kill()
    world.start()
    world.call(operation, "doubtful")

    assert set(kind.counts(world, "doubtful")) == {1}
    world.quiet()
    assert world.staging_names() == []
    assert world.doctor() == []
