"""SIGKILL at every fail point, with every kind of change.

After each one a new daemon must find: an acknowledged call done once, no call half done, a repeat with the same id not
doubled, no staging name left, nothing for `doctor` to tell.
"""

from __future__ import annotations

import itertools

import pytest

from tests.faults.changes import KINDS, POINTS
from tests.faults.harness import Lost, World

pytestmark = pytest.mark.timeout(600)


def attempt(world: World, operation: str, tag: str) -> bool:
    """Whether the call was acknowledged. Lost: the daemon died first."""
    try:
        world.call(operation, tag)
    except Lost:
        return False
    return True


def check_clean(world: World) -> None:
    world.quiet()
    assert world.staging_names() == []
    assert world.doctor() == []
    assert world.conflict_copies() == []


ALWAYS = {("mixed", False), ("roots", False), ("move", False), ("remember", True)}
"""Between them they have every kind of step but the plainest; the others are for `pytest -m slow`."""

CASES = [(name, False) for name in KINDS] + [(name, True) for name in ("one", "two", "log", "mixed", "remember")]


@pytest.mark.parametrize(
    ("operation", "first"),
    [pytest.param(*case, marks=[] if case in ALWAYS else pytest.mark.slow) for case in CASES],
)
def test_killed_anywhere(world: World, operation: str, first: bool) -> None:
    """`first`: in an empty state directory each time; `later`: on what the calls before it left."""
    kind = KINDS[operation]
    world.start()
    hits = 0
    for point in POINTS:
        for number in itertools.count(1):
            tag = f"{point.replace('.', '-')}-{number}"
            if first:
                world.fresh_root()
            kind.before(world)
            world.arm(f"{point}:{number}=kill")
            acknowledged = attempt(world, operation, tag)
            if acknowledged and not died(world):
                break
            world.ended()
            hits += 1
            world.start()
            world.quiet()
            counts = kind.counts(world, tag)
            assert counts in ([0] * len(counts), [1] * len(counts)), f"half done, killed at {point}:{number}"
            assert not acknowledged or counts[0] == 1, f"an acknowledged call is missing, killed at {point}:{number}"
            if counts[0] == 0:
                kind.before(world)
            world.call(operation, tag)
            counts = kind.counts(world, tag)
            assert counts == [1] * len(counts), f"doubled or not done, killed at {point}:{number}"
            check_clean(world)
    assert hits > 10


def died(world: World) -> bool:
    """After the answer: whether the fail point was reached by the checkpoint; if not, it is taken away."""
    try:
        world.quiet()
        world.disarm()
    except (Lost, ConnectionError):
        return True
    return False
