"""Recovery is killed, and recovers again."""

from __future__ import annotations

import itertools

import pytest

from tests.faults.changes import KINDS
from tests.faults.harness import Lost, World

pytestmark = pytest.mark.timeout(600)

POINTS = tuple(
    "open.token recovery.begin recovery.step recovery.sync visible.before visible.after commit.before "
    "journal.committed".split()
)


ALWAYS = {("mixed", "visible.after:1"), ("roots", "visible.after:1"), ("two", "commit.after:1")}


@pytest.mark.parametrize(
    ("operation", "left"),
    [
        pytest.param(*case, marks=[] if case in ALWAYS else pytest.mark.slow)
        for case in itertools.product(("mixed", "two", "move", "roots"), ("commit.after:1", "visible.after:1"))
    ],
)
def test_killed_inside_recovery(world: World, operation: str, left: str) -> None:
    """`left`: where the daemon was killed first."""
    kind = KINDS[operation]
    hits = 0
    for point, number in itertools.product(POINTS, (1, 2)):
        tag = f"{point}-{number}"
        world.start()
        world.call("one", f"{tag}-before")
        kind.before(world)
        world.arm(f"{left}=kill")
        with pytest.raises(Lost):
            world.call(operation, tag)
        world.ended()
        world.start(f"{point}:{number}=kill", ready=False)
        assert world.process is not None
        hits += world.process.poll() is not None
        world.kill()
        world.start()
        world.quiet()
        counts = kind.counts(world, tag)
        assert counts in ([0] * len(counts), [1] * len(counts)), f"half done, killed at {point}:{number}"
        if not counts[0]:
            kind.before(world)
        world.call(operation, tag)
        counts = kind.counts(world, tag)
        assert counts == [1] * len(counts), f"killed at {point}:{number}"
        world.quiet()
        assert world.staging_names() == []
        assert world.doctor() == []
        world.kill()
    assert hits > 5
