"""A state directory that does not answer delays only itself."""

from __future__ import annotations

import pytest

from tests.faults.harness import World, wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    "point", ["load.before", "stage.before", "visible.before", "visible.exchanged", "checkpoint.before"]
)
def test_only_its_own_calls_wait(world: World, point: str) -> None:
    world.start()
    for slot in ("x", "y"):
        world.call("slot", "first", call=f"first-{slot}", slot=slot)
    world.quiet()
    gate = world.base / "gate"
    world.arm(f"{point}:1=wait:{gate}")
    held = world.connect()
    numbers = [
        held.send("trial.slot", {"tag": tag, "slot": "x", "_meta": {"call": tag}}) for tag in ("one", "two", "three")
    ]
    wait_for(lambda: any(row["root"].endswith("-x") for row in world.status()["stuck"]), "the root counts as stuck")
    for number in range(3):
        world.call("slot", f"y{number}", slot="y")
    assert world.tags("a.json", world.home / "trial-y") == ["first", "y0", "y1", "y2"]
    if point != "checkpoint.before":
        assert not held.has_answer()

    gate.touch()
    answers = [held.receive() for _ in numbers]
    assert sorted(answer["id"] for answer in answers) == numbers
    assert all("result" in answer for answer in answers), answers
    assert world.tags("a.json", world.home / "trial-x") == ["first", "one", "two", "three"]
    for slot in ("x", "y"):
        world.call("slot", "last", call=f"last-{slot}", slot=slot)
    world.quiet()
    assert world.status()["stuck"] == []
    assert world.staging_names() == []
    assert world.doctor() == []
    world.stop()


def test_a_memory_document_of_two_roots_loses_no_count(world: World) -> None:
    """One call of a stuck root has set it: the other root's call waits for that one alone, and counts on."""
    world.start()
    for slot in ("x", "y"):
        world.call("counter", f"first-{slot}", slot=slot)
    gate = world.base / "gate"
    world.arm(f"visible.before:1=wait:{gate}")
    held = world.connect()
    held.send("trial.counter", {"tag": "x", "slot": "x", "_meta": {"call": "x"}})
    wait_for(lambda: world.status()["stuck"], "the root counts as stuck")
    other = world.connect()
    other.send("trial.counter", {"tag": "y", "slot": "y", "_meta": {"call": "y"}})
    world.call("slot", "z", slot="z")
    gate.touch()
    held.result()
    other.result()

    assert sorted(world.show()["tags"]) == ["first-x", "first-y", "x", "y"]


def test_memory_counted_from_many_roots_at_once(world: World) -> None:
    """Groups of one batch are decided one after the other, also where only a memory document joins them."""
    world.start()
    connection = world.connect()
    wanted = [f"{slot}{number}" for number in range(10) for slot in "abcd"]
    for tag in wanted:
        connection.send("trial.counter", {"tag": tag, "slot": tag[0], "_meta": {"call": tag}})
    for _ in wanted:
        connection.result()

    assert sorted(world.show()["tags"]) == sorted(wanted)
    for slot in "abcd":
        tags = world.tags("a.json", world.home / f"trial-{slot}")
        assert tags == [tag for tag in wanted if tag[0] == slot]
