"""The journal on real SQLite files: transactions that fail, files that go away, numbers, history, memory."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stated import faults, store
from stated.journal import Done, Group, Journal, JournalFailed, JournalGone, Known, Memory, Notice, Revision
from stated.store import ABSENT, Start, Step


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
def journal(path: str) -> Iterator[Journal]:
    made = opened(path)
    yield made
    faults.install("")
    made.close()


def opened(path: str, boot: str = "boot", clock: int = 1000, **more: Any) -> Journal:
    return Journal(path, boot=boot, clock=lambda: clock, **more)


def group(journal: Journal, call: str = "", root: str = "/root", memory: Any = None) -> Group:
    number = journal.group_number()
    rev = journal.number()
    target = f"{root}/a.json"
    made = Group(number, mounts={root: "mount"})
    made.steps = [
        Step(
            "create",
            root,
            "a.json",
            target,
            store.staging_name(target, number, 0),
            content=b"new",
            staged=Start(5, 3, 9),
        )
    ]
    made.revisions = [
        Revision(
            rev, root, "a.json", None, "call", call or None, "trial.one", 1, 3, "hash", "full", body=b"new", grp=number
        )
    ]
    if call:
        made.done = [Done(call, "request", b'{"n":1}', rev)]
    if memory is not None:
        made.memory = [Memory("trial", "kind", "key", memory)]
    return made


def memories(journal: Journal) -> dict[str, Any]:
    return {row.key: row.value for row in journal.memory()}


# Groups ---------------------------------------------------------------------------------------------------------------


def test_a_committed_group_is_pending_until_it_is_durable(journal: Journal, path: str) -> None:
    made = group(journal, "call")
    journal.commit([made])
    journal.close()
    again = opened(path, boot="another")

    (pending,) = again.pending()
    assert (pending.id, pending.state, pending.boot, pending.mounts) == (
        made.id,
        "committed",
        "boot",
        {"/root": "mount"},
    )
    assert pending.steps == made.steps
    assert pending.revisions == made.revisions
    assert again.find_call("call", set()) == Done("call", "request", b'{"n":1}', made.revisions[0].rev)
    again.durable([made.id])
    assert again.pending() == []
    assert again.find_call("call", set()) is not None
    assert again.was_committed(made.id)
    again.close()


def test_visible_is_known_from_the_next_transaction_on(journal: Journal) -> None:
    first, second = group(journal), group(journal, root="/other")
    known = Known(3, Start(5, 3, 9), "hash", 0)
    journal.commit([first])
    journal.commit([second], visible=[(first.id, [("/root", "a.json", known)])])

    assert [(row.id, row.state) for row in journal.pending()] == [(first.id, "visible"), (second.id, "committed")]
    assert list(journal.documents()) == [("/root", "a.json", known)]


def test_a_checkpoint_of_one_root_marks_the_groups_of_others(journal: Journal) -> None:
    """Else a kill after it would have recovery judge a group by files that people have edited since."""
    first, second = group(journal), group(journal, root="/other")
    journal.commit([first, second])
    journal.durable([first.id], [(first.id, []), (second.id, [])])

    assert [(row.id, row.state) for row in journal.pending()] == [(second.id, "visible")]


def revisions(journal: Journal, root: str, path: str) -> list[Revision]:
    with journal.reading() as ask:
        return [Revision(*row) for row in ask("SELECT * FROM revisions WHERE root=? AND path=?", (root, path))]


def test_a_void_group_has_never_been(journal: Journal) -> None:
    made = group(journal, "call", memory="set")
    journal.commit([made])
    assert memories(journal) == {"key": "set"}
    journal.void([made.id])

    assert journal.pending() == []
    assert journal.find_call("call", set()) is None
    assert revisions(journal, "/root", "a.json") == []
    assert memories(journal) == {}
    assert journal.was_committed(made.id)
    step = journal.void_step(made.id, 0)
    assert step is not None
    assert (step.staging, step.staged, step.content) == (made.steps[0].staging, Start(5, 3, 9), b"")
    journal.forget_void_steps("/root")
    assert journal.void_step(made.id, 0) is None


def test_void_restores_the_memory_before(journal: Journal) -> None:
    first = group(journal, memory={"n": 1})
    second = group(journal, memory={"n": 2})
    second.memory.append(Memory("trial", "kind", "key", None))
    journal.commit([first])
    journal.commit([second])
    assert memories(journal) == {}
    journal.void([second.id])

    assert memories(journal) == {"key": {"n": 1}}


def test_void_leaves_what_a_later_group_remembered(journal: Journal) -> None:
    first, second = group(journal, memory=1), group(journal, memory=2)
    journal.commit([first])
    journal.commit([second])
    journal.void([first.id])

    assert memories(journal) == {"key": 2}


def test_a_commit_voids_in_the_same_transaction(journal: Journal) -> None:
    first, second = group(journal, "call"), group(journal, "call")
    journal.commit([first])
    faults.install("journal.commit:1=error:EIO")
    with pytest.raises(JournalFailed):
        journal.commit([second], voids=[first.id])
    faults.install("")
    journal.commit([], voids=[])
    done = journal.find_call("call", set())
    assert done is not None
    assert done.rev == first.revisions[0].rev
    journal.commit([second], voids=[first.id])

    done = journal.find_call("call", set())
    assert done is not None
    assert done.rev == second.revisions[0].rev
    assert [row.id for row in journal.pending()] == [second.id]


def test_one_root_of_a_group_is_settled_alone(journal: Journal) -> None:
    made = group(journal, "call")
    made.steps.append(Step("create", "/other", "b.json", "/other/b.json", content=b"b"))
    made.mounts["/other"] = "mount"
    journal.commit([made])
    assert journal.partners("/root") == ["/other"]
    journal.settle_root([(made.id, "/root")])

    (left,) = journal.pending()
    assert [step.root for step in left.steps] == ["/other"]
    assert left.state == "redo"  # it can no longer be taken back as a whole
    assert journal.partners("/other") == []
    journal.settle_root([(made.id, "/other")])
    assert journal.pending() == []
    assert journal.find_call("call", set()) is not None


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["journal.begin", "commit.before", "journal.commit"])
def test_a_failed_transaction_leaves_nothing(journal: Journal, point: str) -> None:
    made = group(journal, "call")
    faults.install(f"{point}:1=error:ENOSPC")
    with pytest.raises(JournalFailed) as told:
        journal.commit([made])
    assert told.value.doubtful == (point == "journal.commit")
    faults.install("")

    assert journal.find_call("call", set()) is None
    journal.commit([])
    assert journal.pending() == []


def test_a_commit_that_reported_an_error_and_came_through(journal: Journal, path: str) -> None:
    """It is doubtful: not done for this process, and the next transaction voids it."""
    made = group(journal, "call", memory="set")
    faults.install("journal.committed:1=error:EIO")
    with pytest.raises(JournalFailed) as told:
        journal.commit([made])
    faults.install("")

    assert told.value.doubtful
    for name in Path(path).parent.glob("journal.db*"):
        shutil.copy(name, name.with_name(name.name.replace("journal", "copy")))
    assert journal.find_call("call", set()) is None
    journal.commit([])
    assert journal.pending() == []
    assert memories(journal) == {}
    # A process that died before that transaction would have found it committed.
    after = opened(path.replace("journal", "copy"))
    assert [row.id for row in after.pending()] == [made.id]
    after.close()


def test_a_void_that_failed_is_made_good(journal: Journal) -> None:
    made = group(journal, "call")
    journal.commit([made])
    faults.install("journal.begin:1=error:EIO")
    with pytest.raises(JournalFailed):
        journal.void([made.id])
    faults.install("")
    assert journal.find_call("call", set()) is None
    journal.commit([])

    assert journal.pending() == []


def test_a_full_disk_and_then_room(journal: Journal) -> None:
    pages = journal._rows("PRAGMA page_count")[0][0]
    journal._rows(f"PRAGMA max_page_count={pages + 2}")
    big = group(journal, "big")
    big.steps[0].content = bytes(1 << 20)
    with pytest.raises(JournalFailed, match="full"):
        journal.commit([big])
    small = group(journal, "small")
    journal.commit([small])

    assert [row.id for row in journal.pending()] == [small.id]


# The file goes away ---------------------------------------------------------------------------------------------------


def remove(path: str) -> None:
    for name in Path(path).parent.glob("journal.db*"):
        name.unlink()


@pytest.mark.parametrize("put_in_place", [None, b"", b"not a database, not at all"])
def test_a_journal_that_is_gone(journal: Journal, path: str, put_in_place: bytes | None) -> None:
    first = group(journal, "call")
    journal.commit([first])
    number = journal.number()
    remove(path)
    if put_in_place is not None:
        Path(path).write_bytes(put_in_place)
    with pytest.raises(JournalGone):
        journal.commit([group(journal)])
    if put_in_place:
        with pytest.raises(JournalFailed, match="not a database"):
            journal.reopen()
        Path(path).unlink()
    journal.reopen()
    second = group(journal, "again")
    journal.commit([second])

    assert journal.find_call("call", set()) is None
    assert [row.id for row in journal.pending()] == [second.id]
    assert journal.number() > number
    assert second.id > first.id


def test_gone_while_the_connection_was_closed(journal: Journal, path: str) -> None:
    """After an error the connection is opened anew: a missing file must not be taken for a first start."""
    faults.install("journal.begin:1=error:EIO")
    with pytest.raises(JournalFailed):
        journal.commit([])
    faults.install("")
    remove(path)
    with pytest.raises(JournalFailed, match="gone"):
        journal.find_call("call", set())
    with pytest.raises(JournalGone):
        journal.commit([])
    assert not os.path.exists(path)
    journal.reopen()
    journal.commit([])


def test_gone_in_the_midst_of_a_transaction(journal: Journal, path: str) -> None:
    with pytest.raises(JournalGone), journal.transaction():
        remove(path)
    journal.reopen()
    journal.commit([group(journal, "call")])

    assert journal.find_call("call", set()) is not None


def test_only_the_database_was_deleted(journal: Journal, path: str) -> None:
    journal.commit([group(journal, "call")])
    shutil.copy(f"{path}-wal", f"{path}.wal")
    journal.close()
    os.unlink(path)
    os.rename(f"{path}.wal", f"{path}-wal")
    fresh = opened(path)

    assert fresh.fresh
    assert fresh.find_call("call", set()) is None
    fresh.commit([group(fresh)])
    fresh.close()


def test_a_journal_of_a_newer_release(path: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(JournalFailed, match="newer release"):
        opened(path)


def test_reading_only(journal: Journal, path: str) -> None:
    journal.commit([group(journal, "call")])
    reader = opened(path, readonly=True)

    assert reader.find_call("call", set()) is not None
    with pytest.raises(JournalFailed, match="read-only"):
        reader.commit([])
    reader.close()


# Numbers --------------------------------------------------------------------------------------------------------------


def test_numbers_rise_over_restarts_and_are_never_given_twice(path: str) -> None:
    given_numbers: list[int] = []
    for _ in range(4):
        journal = opened(path)
        given_numbers += [journal.number() for _ in range(700)]
        journal.commit([])
        given_numbers += [number for _ in range(5000) if (number := journal.reserved_number()) is not None]
        assert journal.reserved_number() is None  # the block is used up; a writer's transaction gets the next
        journal._close_quietly()  # as a kill would

    assert given_numbers == sorted(set(given_numbers))


def test_numbers_go_on_from_the_clock_after_a_foreign_past(path: str) -> None:
    journal = opened(path, clock=5_000_000)
    assert journal.number() < 100
    journal.numbers_from_the_clock()

    assert journal.number() >= 5_000_000
    journal.close()


def test_group_numbers_are_above_all_that_a_staging_name_may_have(path: str) -> None:
    first = opened(path, clock=1000)
    committed = group(first)
    first.commit([committed])
    first.durable([committed.id])
    never_committed = [first.group_number() for _ in range(300)]
    first.close()
    second = opened(path, clock=10)
    assert second.group_number() > max(never_committed)
    second.close()
    # And a new journal goes on above what another one gave before.
    other = opened(f"{path}.new", clock=2000)
    assert other.group_number() > max(never_committed)
    other.close()


# History --------------------------------------------------------------------------------------------------------------


def test_what_a_root_leaves_when_it_is_forgotten(journal: Journal) -> None:
    journal.put_root("/root", "token", "trial", "2026-01-01T00:00:00Z")
    made = group(journal)
    journal.commit([made])
    journal.durable(
        [made.id], [(made.id, [("/root", "a.json", Known(1, ABSENT, "", -1))])], [Notice("/root", "a", "p", "h")]
    )
    assert [row["root"] for row in journal.roots()] == ["/root"]
    assert [row.problem for row in journal.notices()] == ["p"]

    assert journal.forget_root("/root") == 1
    assert (journal.roots(), journal.notices(), list(journal.documents())) == ([], [], [])
    assert revisions(journal, "/root", "a.json") == []


def test_old_call_ids_go(path: str) -> None:
    now = [1000]
    journal = Journal(path, boot="boot", clock=lambda: now[0])
    journal.commit([group(journal, "call")])
    now[0] += 24 * 3600
    journal.durable([])
    assert journal.find_call("call", set()) is not None
    now[0] += 7 * 24 * 3600
    journal.durable([])

    assert journal.find_call("call", set()) is None
    journal.close()
