"""What readers see: whole commits only, and what is on the disk."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from stated import config, store
from stated.domain import At
from stated.journal import Known
from stated.snapshot import ReadView, Snapshot, Version, absolute, is_trusted
from stated.store import ABSENT


class Reader:
    """A view, and what it told of."""

    def __init__(self, snapshot: Snapshot, *, quick: bool = False, numbers: int = 0) -> None:
        self.observed: list[tuple[At, Version]] = []
        left = iter(range(100, 100 + numbers))
        self.view = ReadView(
            snapshot,
            "trial",
            quick=quick,
            number=lambda: next(left, None),
            observed=lambda at, version: self.observed.append((at, version)),
        )


@pytest.fixture
def at(tmp_path: Path) -> At:
    return At(str(tmp_path), "a.json")


def written(at: At, content: bytes, *, age: float = 1.0) -> Version:
    """A file that was written some time ago, as its published version."""
    Path(absolute(at)).write_bytes(content)
    stat = store.look(absolute(at))
    assert stat is not None
    return Version(stat, content, store.digest(content), 1, trusted=age > 0)


def test_a_first_look_needs_a_thread(at: At) -> None:
    written(at, b'{"n": 1}')
    snapshot = Snapshot({}, {})
    with pytest.raises(ReadView.Slow):
        Reader(snapshot, quick=True).view.json(at)
    reader = Reader(snapshot)

    assert reader.view.json(at).value == {"n": 1}
    assert [place for place, _ in reader.observed] == [at]


def test_a_trusted_version_is_used_again_while_stat_is_the_same(at: At) -> None:
    version = written(at, b'{"n": 1}')
    snapshot = Snapshot({}, {})
    snapshot.publish({at: version}, {}, {})
    parsed = Reader(snapshot, quick=True).view.json(at)

    assert Reader(snapshot, quick=True).view.json(at) is parsed
    Path(absolute(at)).write_bytes(b'{"n": 2}')
    with pytest.raises(ReadView.Slow):
        Reader(snapshot, quick=True).view.json(at)
    assert Reader(snapshot).view.json(at).value == {"n": 2}


def test_a_young_version_is_compared_byte_by_byte(at: At) -> None:
    """Its file may change again under the same times; equal times are made here, as a recent kernel makes none."""
    version = written(at, b'{"n": 1}', age=0)
    snapshot = Snapshot({}, {})
    snapshot.publish({at: version}, {}, {})
    assert version.stat is not None
    Path(absolute(at)).write_bytes(b'{"n": 2}')
    now = store.look(absolute(at))
    assert now is not None
    version.stat = now
    with pytest.raises(ReadView.Slow):
        Reader(snapshot, quick=True).view.json(at)

    assert Reader(snapshot).view.json(at).value == {"n": 2}


def test_when_a_look_is_trusted(at: At) -> None:
    written(at, b"x")
    stat = store.look(absolute(at))
    assert stat is not None
    assert is_trusted(stat._replace(ctime=time.time_ns() - 2 * config.TRUST_AGE_NS))
    assert not is_trusted(stat._replace(ctime=time.time_ns()))


def test_absent_is_a_version_too(at: At) -> None:
    snapshot = Snapshot({}, {})
    reader = Reader(snapshot)

    assert not reader.view.json(at).exists
    assert reader.view.rev(at) is None
    assert not reader.view.exists(at)
    assert reader.observed == []


def test_a_removed_document_is_told_of(at: At) -> None:
    version = written(at, b"{}")
    assert version.stat is not None
    snapshot = Snapshot({at: Known(3, version.stat.start, version.hash, 0)}, {})
    Path(absolute(at)).unlink()
    reader = Reader(snapshot)
    assert not reader.view.json(at).exists

    assert [(place, seen.exists) for place, seen in reader.observed] == [(at, False)]


@pytest.mark.parametrize("numbers", [0, 1])
def test_the_revision_of_what_nobody_recorded(at: At, numbers: int) -> None:
    version = written(at, b"{}")
    reader = Reader(Snapshot({}, {}), numbers=numbers)

    assert reader.view.rev(at) == (100 if numbers else f"sha256:{version.hash}")
    assert len(reader.observed) == 1


def test_the_revision_of_what_is_known(at: At) -> None:
    version = written(at, b"{}")
    assert version.stat is not None
    for known in (
        Known(7, version.stat.start, version.hash, 0),
        Known(7, ABSENT, version.hash, 0),
        Known(7, version.stat.start, "", -1),
    ):
        reader = Reader(Snapshot({at: known}, {}))
        assert reader.view.rev(at) == 7
        assert reader.observed == []


# A group that is being made visible -----------------------------------------------------------------------------------


def test_a_pinned_document_counts_as_unchanged(at: At) -> None:
    old = written(at, b'{"n": 1}')
    snapshot = Snapshot({}, {})
    snapshot.pin({at: old})
    Path(absolute(at)).write_bytes(b'{"n": 2}')
    assert Reader(snapshot, quick=True).view.json(at).value == {"n": 1}
    snapshot.publish({at: written(at, b'{"n": 2}')}, {}, {})

    assert Reader(snapshot, quick=True).view.json(at).value == {"n": 2}


def test_a_pinned_absent_document_stays_absent(at: At) -> None:
    snapshot = Snapshot({}, {})
    snapshot.pin({at: Version(None, None, trusted=True)})
    written(at, b"{}")
    reader = Reader(snapshot, quick=True)
    assert not reader.view.json(at).exists
    assert not reader.view.exists(at)
    snapshot.unpin([at])

    assert Reader(snapshot).view.json(at).exists


def test_a_pinned_log_that_was_never_read_ends_where_it_ended(at: At) -> None:
    old = written(at, b'{"n":1}\n')
    old.raw = None
    snapshot = Snapshot({}, {})
    snapshot.pin({at: old})
    with Path(absolute(at)).open("ab") as file:
        file.write(b'{"n":2}\n')
    with pytest.raises(ReadView.Slow):
        Reader(snapshot, quick=True).view.lines(at)

    assert [value for _, value in Reader(snapshot).view.lines(at).records] == [{"n": 1}]


def test_what_was_used_together_belongs_together(tmp_path: Path) -> None:
    places = [At(str(tmp_path), name) for name in "ab"]
    snapshot = Snapshot({}, {})
    snapshot.publish({at: written(at, b'{"n": 1}') for at in places}, {}, {})
    reader = Reader(snapshot, quick=True)
    reader.view.json(places[0])
    snapshot.publish({at: written(at, b'{"n": 2}') for at in places}, {}, {})
    reader.view.json(places[1])

    assert not reader.view.consistent()
    again = Reader(snapshot, quick=True)
    assert [again.view.json(at).value["n"] for at in places] == [2, 2]
    assert again.view.consistent()


def test_readers_never_see_half_a_group(tmp_path: Path) -> None:
    """A writer that makes two files visible one after the other, readers that look all the time."""
    places = [At(str(tmp_path), name) for name in "ab"]
    snapshot = Snapshot({}, {})
    now = {at: written(at, b'{"n": 0}') for at in places}
    snapshot.publish(now, {}, {})
    seen: list[tuple[int, int]] = []
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            reader = Reader(snapshot)
            try:
                values = [reader.view.json(at).value["n"] for at in places]
            except ReadView.Slow:
                continue
            if reader.view.consistent():
                seen.append((values[0], values[1]))

    readers = [threading.Thread(target=look) for _ in range(3)]
    for thread in readers:
        thread.start()
    for number in range(1, 150):
        snapshot.pin(now)
        now = {}
        for at in places:
            target = Path(absolute(at))
            content = b'{"n": %d}' % number
            (tmp_path / "new").write_bytes(content)
            os.rename(tmp_path / "new", target)
            stat = store.look(absolute(at))
            now[at] = Version(stat, content, store.digest(content), number)
        snapshot.publish(now, {}, {})
    enough.set()
    for thread in readers:
        thread.join()

    assert seen
    assert [pair for pair in seen if pair[0] != pair[1]] == []


# Publishing -----------------------------------------------------------------------------------------------------------


def test_a_readers_look_never_replaces_what_was_published_since(at: At) -> None:
    snapshot = Snapshot({}, {})
    seen = snapshot.current(at)
    mine = written(at, b"1")
    published = written(at, b"2")
    snapshot.publish({at: published}, {}, {})

    assert not snapshot.offer(at, seen, mine)
    assert snapshot.current(at) is published
    assert snapshot.offer(at, published, mine)
    snapshot.pin({at: published})
    assert not snapshot.offer(at, mine, mine)


def test_memory_and_what_is_known(at: At) -> None:
    snapshot = Snapshot({}, {("trial", "kind", "key"): 1, ("trial", "kind", "other"): 2})
    snapshot.publish({}, {at: Known(1, ABSENT, "", -1)}, {("trial", "kind", "key"): None, ("trial", "kind", "new"): 3})

    assert snapshot.memory == {("trial", "kind", "other"): 2, ("trial", "kind", "new"): 3}
    view = Reader(snapshot).view
    assert (view.memory("kind", "new"), view.memory("kind", "key")) == (3, None)
    snapshot.forget(at.root)
    assert snapshot.known == {}


def test_the_cache_is_bounded_and_keeps_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "PARSE_CACHE_BYTES", 2000)
    snapshot = Snapshot({}, {})
    for number in range(10):
        at = At(str(tmp_path), f"{number}.json")
        snapshot.publish({at: written(at, b"x" * 500)}, {}, {})
    big = At(str(tmp_path), "big.json")
    assert snapshot.statistics()["bytes"] <= 2000
    snapshot.publish({big: written(big, b"x" * 5000)}, {}, {})

    assert snapshot.statistics()["documents"] == 1
    assert snapshot.current(big) is not None
    snapshot.forget_versions(str(tmp_path))
    assert snapshot.statistics() == {"documents": 0, "bytes": 0}


def test_folders_and_texts(tmp_path: Path) -> None:
    root = At(str(tmp_path), "")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.md").write_bytes(b"text")
    view = Reader(Snapshot({}, {})).view

    assert view.folder(root) == ("sub/",)
    assert view.text(At(str(tmp_path), "sub/x.md")).raw == b"text"
    assert view.exists(At(str(tmp_path), "sub"))
