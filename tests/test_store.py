"""Steps on real files: each kind is made, judged by what it displaced, and taken back."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stated import config, store, syscalls
from stated.store import ABSENT, OutsideEdit, Step


@pytest.fixture(params=["exchange", "link"])
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With names that can be exchanged, and on a file system where they cannot."""
    if request.param == "link":

        def unsupported(one: str, other: str) -> None:
            raise syscalls.Unsupported(errno.EINVAL, "no exchange")

        monkeypatch.setattr(syscalls, "exchange", unsupported)
    return str(request.param)


def step(kind: str, target: Path, content: bytes = b"", **more: Any) -> Step:
    """A step that starts from what is there now."""
    now = store.look(str(target))
    before = target.read_bytes() if now is not None and target.is_file() else b""
    return Step(
        kind,
        str(target.parent),
        target.name,
        str(target),
        store.staging_name(str(target), 7, 0),
        now.start if now is not None else ABSENT,
        store.digest(before) if now is not None else "",
        content,
        hash=store.digest(content),
        **more,
    )


def staged(made: Step) -> Step:
    fd = store.stage(made)
    if fd is not None:
        os.close(fd)
    return made


def staging_names(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".stated-*")]


def replace_by_rename(path: Path, content: bytes) -> None:
    """As most editors save."""
    other = path.with_name("editor.tmp")
    other.write_bytes(content)
    other.rename(path)


# Made and taken back --------------------------------------------------------------------------------------------------


def test_replace(tmp_path: Path, names: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = staged(step("replace", path, b"new"))
    store.make(made)

    assert made.made
    assert made.judged
    assert path.read_bytes() == b"new"
    assert (tmp_path / made.staging).read_bytes() == b"old"
    store.settle(made)
    assert staging_names(tmp_path) == []
    assert store.late_edit(made) is None


def test_replace_taken_back(tmp_path: Path, names: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    before = path.stat()
    made = staged(step("replace", path, b"new"))
    store.make(made)
    store.take_back(made)
    store.drop_staging(made)

    after = path.stat()
    assert path.read_bytes() == b"old"
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert staging_names(tmp_path) == []


def test_replace_keeps_mode_and_attributes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.setxattr(path, "user.mine", b"kept")
    store.make(staged(step("replace", path, b"new")))

    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.getxattr(path, "user.mine") == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="another owner's file needs root")
def test_replace_keeps_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    store.make(staged(step("replace", path, b"new")))

    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


@pytest.mark.parametrize(
    "edit", [lambda path: replace_by_rename(path, b"theirs"), lambda path: path.write_bytes(b"theirs")]
)
def test_replace_meets_an_edit_before(tmp_path: Path, edit: Callable[[Path], object]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = staged(step("replace", path, b"new"))
    edit(path)
    with pytest.raises(OutsideEdit):
        store.make(made)
    store.drop_staging(made)

    assert path.read_bytes() == b"theirs"
    assert staging_names(tmp_path) == []


def between(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], object], times: int = 1) -> None:
    """Somebody acts when this place of a step is reached."""
    left = [times]

    def reach(name: str) -> None:
        if name == point and left[0]:
            left[0] -= 1
            act()

    monkeypatch.setattr(store, "reach", reach)


def test_replace_meets_an_edit_between_look_and_exchange(
    tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = staged(step("replace", path, b"new"))
    between(monkeypatch, "visible.checked", lambda: replace_by_rename(path, b"theirs"))
    with pytest.raises(OutsideEdit):
        store.make(made)
    store.drop_staging(made)

    assert path.read_bytes() == b"theirs"
    assert staging_names(tmp_path) == []


def test_a_third_version_stays_and_the_second_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two saves of an editor, before and after our exchange: the newest is in the file, the other under the staging
    name."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = staged(step("replace", path, b"new"))
    exchange = syscalls.exchange
    saves = iter([b"second", b"third"])

    def racing(one: str, other: str) -> None:
        for content in (b"second",) if next(saves, None) == b"second" else ():
            replace_by_rename(path, content)
        exchange(one, other)
        if path.read_bytes() == b"new":
            replace_by_rename(path, b"third")

    monkeypatch.setattr(syscalls, "exchange", racing)
    with pytest.raises(OutsideEdit):
        store.make(made)

    assert path.read_bytes() == b"third"
    assert Path(made.staging).read_bytes() == b"second"


OLD, NEW = b'{"n": 1,\n "m": 1}\n', b'{"n": 2,\n "m": 1}\n'


@pytest.mark.parametrize(
    ("theirs", "left"),
    [
        pytest.param(b'{"n": 2,\n "m": 9}\n', b'{"n": 1,\n "m": 9}\n', id="made from ours, behind it"),
        pytest.param(b'{"x": 0, "n": 2,\n "m": 1}\n', b'{"x": 0, "n": 1,\n "m": 1}\n', id="made from ours, before it"),
        pytest.param(b'{"n": 1,\n "m": 9}\n', b'{"n": 1,\n "m": 9}\n', id="made from the version before"),
        pytest.param(NEW, OLD, id="ours written anew"),
    ],
)
def test_an_edit_made_while_ours_was_visible_stays_without_ours(tmp_path: Path, theirs: bytes, left: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(OLD)
    made = staged(step("replace", path, NEW))
    store.make(made)
    replace_by_rename(path, theirs)
    store.take_back(made)

    assert path.read_bytes() == left
    store.drop_staging(made)
    assert staging_names(tmp_path) == []


def test_an_edit_that_cannot_be_told_from_ours_is_left_for_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(OLD)
    made = staged(step("replace", path, NEW))
    store.make(made)
    path.write_bytes(b"something else")
    store.take_back(made)

    assert path.read_bytes() == OLD
    assert Path(made.staging).read_bytes() == b"something else"


def test_a_removal_while_ours_was_visible_stays(tmp_path: Path, names: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = staged(step("replace", path, b"new"))
    store.make(made)
    path.unlink()
    store.take_back(made)

    assert not path.exists()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "a.json"
    real.write_bytes(b"old")
    link = tmp_path / "a.json"
    link.symlink_to("real/a.json")
    target = store.real_target(str(link))
    store.make(staged(step("replace", Path(target), b"new")))

    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert staging_names(tmp_path) == [".stated-7-0.tmp"]
    assert (tmp_path / "real" / ".stated-7-0.tmp").exists()


def test_create(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.json"
    made = staged(step("create", path, b"new"))
    store.make(made)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.folders == [str(tmp_path / "deep"), str(tmp_path / "deep" / "er")]
    store.take_back(made)
    store.drop_staging(made)
    assert list(tmp_path.iterdir()) == []


def test_create_never_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    made = staged(step("create", path, b"new"))
    path.write_bytes(b"theirs")
    with pytest.raises(OutsideEdit):
        store.make(made)

    assert path.read_bytes() == b"theirs"


def test_delete(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = step("delete", path)
    store.make(made)

    assert not path.exists()
    store.take_back(made)
    assert path.read_bytes() == b"old"


def test_delete_meets_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = step("delete", path)
    rename = syscalls.rename_noreplace

    def racing(source: str, target: str) -> None:
        if source == str(path):
            replace_by_rename(path, b"theirs")
        rename(source, target)

    monkeypatch.setattr(syscalls, "rename_noreplace", racing)
    with pytest.raises(OutsideEdit):
        store.make(made)

    assert path.read_bytes() == b"theirs"


def test_a_folder_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "one"
    made = step("folder", path, files={"a.json": b"a", "deep/b.json": b"b"})
    staged(made)
    assert not path.exists()
    store.make(made)

    assert (path / "a.json").read_bytes() == b"a"
    assert (path / "deep" / "b.json").read_bytes() == b"b"
    store.take_back(made)
    store.drop_staging(made)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["a.json", "new.txt"])
def test_a_folder_that_somebody_worked_in_stays(tmp_path: Path, file: str) -> None:
    path = tmp_path / "one"
    made = staged(step("folder", path, files={"a.json": b"a"}))
    store.make(made)
    (path / file).write_bytes(b"theirs")
    store.take_back(made)
    store.drop_staging(made)

    assert (path / file).read_bytes() == b"theirs"


def test_move(tmp_path: Path) -> None:
    source, target = tmp_path / "one", tmp_path / "archive" / "one"
    source.mkdir()
    (source / "a").write_bytes(b"a")
    now = store.look(str(source))
    assert now is not None
    made = Step("move", str(tmp_path), "archive/one", str(target), str(source), now.start)
    staged(made)
    store.make(made)

    assert (target / "a").read_bytes() == b"a"
    store.take_back(made)
    store.drop_staging(made)
    assert (source / "a").read_bytes() == b"a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]


# Appends --------------------------------------------------------------------------------------------------------------


def test_append(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")
    store.make(made)

    assert (path.read_bytes(), made.landed) == (b"one\ntwo\n", 4)
    store.take_back(made)
    assert path.read_bytes() == b"one\n"


def test_append_to_what_was_changed_before(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")
    path.write_bytes(b"one\nhalf a li")
    with pytest.raises(OutsideEdit):
        store.make(made)

    assert path.read_bytes() == b"one\nhalf a li"


def test_append_lands_behind_a_whole_line_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")

    def write() -> None:
        with path.open("ab") as file:
            file.write(b"theirs\n")

    between(monkeypatch, "visible.checked", write)
    store.make(made)

    assert (path.read_bytes(), made.landed) == (b"one\ntheirs\ntwo\n", 11)


def test_append_is_never_glued_to_half_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")

    def write() -> None:
        with path.open("ab") as file:
            file.write(b"half")

    between(monkeypatch, "visible.checked", write)
    with pytest.raises(OutsideEdit):
        store.make(made)

    assert path.read_bytes() == b"one\nhalf"


@pytest.mark.parametrize("point", ["visible.checked", "visible.exchanged"])
def test_append_into_a_file_that_was_just_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The line went with the old file; a line like it that stands in the new one is somebody else's."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"two\none\n")
    made = step("append", path, b"two\n")
    between(monkeypatch, point, lambda: replace_by_rename(path, b"two\none\ntheirs\n"))
    with pytest.raises(OutsideEdit):
        store.make(made)

    assert path.read_bytes() == b"two\none\ntheirs\n"


def test_append_that_the_new_file_took_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")
    between(monkeypatch, "visible.exchanged", lambda: replace_by_rename(path, b"theirs\n" + path.read_bytes()))
    store.make(made)

    assert path.read_bytes() == b"theirs\none\ntwo\n"


def test_a_short_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:2]))
    with pytest.raises(OSError, match="No space"):
        store.make(made)

    assert path.read_bytes() == b"one\n"


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (b"one\ntwo\nthree\n", b"one\nthree\n"),
        (b"theirs\none\ntwo\n", b"theirs\none\n"),
        (b"two\n", b""),
        (b"one\n", b"one\n"),
        (b"one\nnot two\n", b"one\nnot two\n"),
    ],
)
@pytest.mark.parametrize("anew", [True, False])
def test_an_append_is_edited_out_of_what_the_file_became(tmp_path: Path, now: bytes, left: bytes, anew: bool) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    made = step("append", path, b"two\n")
    store.make(made)
    if anew:
        replace_by_rename(path, now)
    else:
        path.write_bytes(now)
    store.take_back(made)

    assert path.read_bytes() == left
    assert staging_names(tmp_path) == []


def test_an_unended_line_is_as_it_was_after_taking_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one")
    made = step("append", path, b"\ntwo\n")
    store.make(made)
    assert path.read_bytes() == b"one\ntwo\n"
    store.take_back(made)

    assert path.read_bytes() == b"one"


# Failures while staging -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["create", "replace", "folder"])
def test_a_failed_staging_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "deep" / "a"
    if kind == "replace":
        path.parent.mkdir()
        path.write_bytes(b"old")
    made = step(kind, path, b"new", files={"x": b"x"} if kind == "folder" else {})

    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        store.stage(made)

    assert [name.name for name in tmp_path.rglob("*") if name.is_file()] == (["a"] if kind == "replace" else [])
    assert staging_names(tmp_path) == []
    assert path.parent.exists() == (kind == "replace")


# Displaced files ------------------------------------------------------------------------------------------------------


def displaced(tmp_path: Path) -> tuple[Path, Step]:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    made = staged(step("replace", path, b"new"))
    return path, made


def test_an_editor_that_has_the_displaced_file_open(tmp_path: Path) -> None:
    syscalls.ignore_lease_signal()
    path, made = displaced(tmp_path)
    with path.open("r+b") as editor:
        store.make(made)
        store.settle(made)
        assert made.late
        assert staging_names(tmp_path) == [".stated-7-0.tmp"]
        assert store.may_still_change(made)
        editor.write(b"late edit")
    assert not store.may_still_change(made)

    assert store.late_edit(made) == b"late edit"
    store.drop_displaced(made)
    assert staging_names(tmp_path) == []
    assert path.read_bytes() == b"new"


def test_an_edit_of_a_displaced_file_without_a_name(tmp_path: Path) -> None:
    """It was opened for reading only when the name went, and written through another way."""
    syscalls.ignore_lease_signal()
    path, made = displaced(tmp_path)
    with path.open("rb") as reader:
        store.make(made)
        store.settle(made)
        assert staging_names(tmp_path) == []
        with open(f"/proc/self/fd/{reader.fileno()}", "r+b") as editor:
            editor.write(b"late")

    assert store.late_edit(made) == b"late"


def test_nobody_is_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syscalls.ignore_lease_signal()
    path, made = displaced(tmp_path)
    with path.open("r+b"):
        store.make(made)
        store.settle(made)
        made.since -= config.QUIET_WAIT

        assert not store.may_still_change(made)
    assert store.late_edit(made) is None


def test_settle_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = displaced(tmp_path)
    store.make(made)

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "unlink", refuse)
    store.settle(made)
    monkeypatch.undo()

    assert made.late
    assert store.late_edit(made) is None
    store.drop_displaced(made)
    assert staging_names(tmp_path) == []


# Conflict copies ------------------------------------------------------------------------------------------------------


def test_conflict_copies_never_replace_each_other(tmp_path: Path) -> None:
    copies = [store.keep_copy(str(tmp_path / "c"), "/root", "sub/a.json", b"%d" % number) for number in range(3)]

    assert [Path(copy).read_bytes() for copy in copies] == [b"0", b"1", b"2"]
    assert all(copy.endswith("sub-a.json") for copy in copies)


@pytest.mark.parametrize("path", ["é" * 200, "x" * 400, "a/" * 100 + "b", ""])
def test_a_conflict_copy_of_any_name(tmp_path: Path, path: str) -> None:
    assert Path(store.keep_copy(str(tmp_path), "/root", path, b"x")).read_bytes() == b"x"


def test_stage_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n")
    before = path.stat().st_ino
    store.stage_anew(str(path), 9)

    assert path.read_bytes() == b"one\n"
    assert path.stat().st_ino != before
    assert staging_names(tmp_path) == []


# Reading --------------------------------------------------------------------------------------------------------------


def test_read_what_is_no_file(tmp_path: Path) -> None:
    from stated.errors import Refused

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(Refused, match="not a plain file"):
            store.read(str(path))
    assert store.read(str(tmp_path / "absent")) is None
    assert store.look(str(tmp_path / "absent" / "deeper")) is None


def test_names_leave_out_what_is_staged(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("b.json", ".stated-1-0.tmp", ".stated-1-0.old.tmp", ".stated-notes"):
        (tmp_path / name).touch()

    assert store.names(str(tmp_path)) == (".stated-notes", "b.json", "folder/")
    assert store.names(str(tmp_path / "absent")) == ()


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_changed_bytes_rebuild_the_version_after(before: bytes, after: bytes) -> None:
    head, tail, body = store.changed_bytes(before, after)

    assert before[:head] + body + before[len(before) - tail :] == after
    assert head + tail <= min(len(before), len(after))


@given(st.lists(st.sampled_from([b"aa", b"b", b"\n", b"ccc"]), max_size=12), st.data())
def test_two_edits_at_different_places_are_joined(parts: list[bytes], data: st.DataObject) -> None:
    """What `take_back` relies on: with ours taken out of theirs, theirs alone is left."""
    start = b"[" + b"".join(parts) + b"]"
    cut = data.draw(st.integers(1, len(start) - 1))
    ours = start[:cut] + b"<ours>" + start[cut:]
    edit = data.draw(st.integers(1, len(start) - 1))
    theirs_alone = start[:edit] + b"(theirs)" + start[edit:]
    place = edit if edit < cut else edit + len(b"<ours>")
    if edit == cut:
        return
    both = ours[:place] + b"(theirs)" + ours[place:]

    assert store._apart(ours, start, both) == theirs_alone
