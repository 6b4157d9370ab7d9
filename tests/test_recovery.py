"""What a crash left, and what a person did before the state is opened again: every combination that can be told apart.

A `Scene` stages, commits and makes steps with the engine's own `store` and `journal`, stops anywhere, and opens the
root again: in the same boot, after a power loss, or with another past.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stated import config, faults, store, syscalls
from stated.journal import Done, Group, Journal, Notice, Revision
from stated.recovery import Recovery
from stated.roots import OpenRoot, Roots, StepAside
from stated.store import ABSENT, Step

CLOCK = 2_000_000_000


class Scene:
    """A journal, a root with files, and what becomes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.boot = "boot 1"
        self.remembered: list[tuple[str, str, Any]] = []
        self.journal = self._journal()
        self.roots = self._roots()
        self.open()

    def _journal(self) -> Journal:
        return Journal(str(self.folder / "journal.db"), boot=self.boot, clock=lambda: CLOCK)

    def _roots(self) -> Roots:
        def recover(root: OpenRoot, others: Mapping[str, OpenRoot]) -> None:
            recovery = Recovery(self.journal, str(self.folder / "conflicts"), self.remembered.extend, lambda: None)
            recovery.recover(root, others)

        return Roots(self.journal, "", recover, lambda: CLOCK)

    def open(self, root: Path | None = None) -> OpenRoot:
        opened = self.roots.get(str(root or self.root), "trial")
        assert opened is not None
        return opened

    def crash(self, boot: str | None = None) -> None:
        """This process ends at once; the next one begins (after a power loss: in another boot)."""
        self.roots.close()
        self.journal._close_quietly()
        self.boot = boot or self.boot
        self.journal = self._journal()
        self.roots = self._roots()

    def close(self) -> None:
        faults.install("")
        self.roots.close()
        self.journal.close()

    # A write, step by step --------------------------------------------------------------------------------------------

    def group(self, *steps: Step, call: str = "call") -> Group:
        number = self.journal.group_number()
        rev = self.journal.number()
        made = Group(number, list(steps))
        for n, step in enumerate(steps):
            if step.kind != "move":
                step.staging = store.staging_name(step.target, number, n)
            made.mounts[step.root] = self.open(Path(step.root)).mount
            made.revisions.append(
                Revision(
                    rev,
                    step.root,
                    step.path,
                    None,
                    "call",
                    call,
                    "m",
                    1,
                    len(step.content),
                    step.hash,
                    "none",
                    grp=number,
                )
            )
            fd = store.stage(step)
            if fd is not None:
                os.fdatasync(fd)
                os.close(fd)
        made.done = [Done(call, "request", b"{}", rev)]
        self.journal.commit([made])
        return made

    def step(self, kind: str, path: str, content: bytes = b"", root: Path | None = None, **more: Any) -> Step:
        base = root or self.root
        target = base / path
        now = store.look(str(target))
        before = target.read_bytes() if now is not None and target.is_file() else b""
        return Step(
            kind, str(base), path, str(target), start=now.start if now else ABSENT,
            start_hash=store.digest(before) if now and kind != "append" else "", content=content,
            hash=store.digest(content) if kind in ("replace", "create") else "", **more,
        )  # fmt: skip

    def is_done(self, call: str = "call") -> bool:
        return self.journal.find_call(call, set()) is not None

    def read(self, path: str) -> bytes | None:
        target = self.root / path
        return target.read_bytes() if target.exists() else None

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))

    def copies(self) -> list[bytes]:
        folder = self.folder / "conflicts"
        return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []

    def notices(self) -> list[Notice]:
        return self.journal.notices()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def rename_over(path: Path, content: bytes) -> None:
    other = path.with_name("editor.tmp")
    other.write_bytes(content)
    other.rename(path)


def check_settled(scene: Scene) -> None:
    """Whatever was found: nothing is left over, every conflict copy is told of, and the next opening has nothing to
    do."""
    assert [name for name in scene.names() if ".stated-" in name] == []
    assert scene.journal.pending() == []
    told = [notice for notice in scene.notices() if notice.copy is not None]
    assert sorted(Path(notice.copy or "").read_bytes() for notice in told) == sorted(scene.copies())
    before = scene.names()
    scene.crash()
    scene.open()
    assert scene.names() == before


# The same boot: one step ----------------------------------------------------------------------------------------------

Person = Callable[[Path], object]
NOBODY: Person = lambda path: None  # noqa: E731 - a row of a table


@dataclass(frozen=True)
class Row:
    kind: str
    made: bool
    person: Person
    left: bytes | None
    done: bool
    copies: tuple[bytes, ...] = ()


ROWS = {
    # replace: `old` becomes `new`
    "replace, not made": Row("replace", False, NOBODY, b"new", True),
    "replace, made": Row("replace", True, NOBODY, b"new", True),
    "replace, not made, edited": Row("replace", False, lambda p: rename_over(p, b"theirs"), b"theirs", False),
    "replace, not made, edited in place": Row("replace", False, lambda p: p.write_bytes(b"theirs"), b"theirs", False),
    "replace, not made, removed": Row("replace", False, lambda p: p.unlink(), None, False),
    "replace, made, edited": Row("replace", True, lambda p: rename_over(p, b"theirs"), b"theirs", True),
    "replace, made, edited in place": Row("replace", True, lambda p: p.write_bytes(b"theirs"), b"theirs", True),
    "replace, made, removed": Row("replace", True, lambda p: p.unlink(), None, True),
    # create
    "create, not made": Row("create", False, NOBODY, b"new", True),
    "create, made": Row("create", True, NOBODY, b"new", True),
    "create, not made, somebody's": Row("create", False, lambda p: p.write_bytes(b"theirs"), b"theirs", False),
    "create, made, edited": Row("create", True, lambda p: rename_over(p, b"theirs"), b"theirs", True),
    "create, made, removed": Row("create", True, lambda p: p.unlink(), None, True),
    # delete
    "delete, not made": Row("delete", False, NOBODY, None, True),
    "delete, made": Row("delete", True, NOBODY, None, True),
    # (its names look as if it had been made, and the file made anew: either way the edit stays)
    "delete, not made, edited": Row("delete", False, lambda p: p.write_bytes(b"theirs"), b"theirs", True),
    "delete, made, made anew": Row("delete", True, lambda p: p.write_bytes(b"theirs"), b"theirs", True),
    # append: `old` is a log of one line
    "append, not made": Row("append", False, NOBODY, b"old\nnew\n", True),
    "append, made": Row("append", True, NOBODY, b"old\nnew\n", True),
    "append, not made, a line more": Row("append", False, lambda p: p.write_bytes(b"old\nx\n"), b"old\nx\n", False),
    "append, made, a line more": Row("append", True, lambda p: p.write_bytes(b"old\nnew\nx\n"), b"old\nnew\nx\n", True),
    "append, made, a line before": Row(
        "append", True, lambda p: rename_over(p, b"x\nold\nnew\n"), b"x\nold\nnew\n", True
    ),
    "append, not made, removed": Row("append", False, lambda p: p.unlink(), None, False),
}  # fmt: skip


@pytest.mark.parametrize("settled", [False, True], ids=["displaced kept", "displaced dropped"])
@pytest.mark.parametrize("name", ROWS)
def test_one_step_in_the_same_boot(scene: Scene, name: str, settled: bool) -> None:
    row = ROWS[name]
    path = scene.root / "a"
    if row.kind != "create":
        path.write_bytes(b"old\n" if row.kind == "append" else b"old")
    step = scene.step(row.kind, "a", b"" if row.kind == "delete" else b"new\n" if row.kind == "append" else b"new")
    scene.group(step)
    if row.made:
        store.make(step)
        if settled:
            store.settle(step)
    row.person(path)
    scene.crash()
    scene.open()

    assert scene.read("a") == row.left
    assert scene.is_done() == row.done
    assert tuple(scene.copies()) == row.copies
    check_settled(scene)


@pytest.mark.parametrize("part", [1, 2, 3])
def test_half_an_append_is_completed(scene: Scene, part: int) -> None:
    (scene.root / "a").write_bytes(b"old\n")
    scene.group(scene.step("append", "a", b"new\n"))
    with (scene.root / "a").open("ab") as file:
        file.write(b"new\n"[:part])
    scene.crash()
    scene.open()

    assert scene.read("a") == b"old\nnew\n"
    assert scene.is_done()
    check_settled(scene)


def test_half_an_append_goes_with_its_group(scene: Scene) -> None:
    """The line could be completed, but the file beside it was edited: both are taken back."""
    (scene.root / "log").write_bytes(b"old\n")
    (scene.root / "a").write_bytes(b"old")
    scene.group(scene.step("append", "log", b"new\n"), scene.step("replace", "a", b"new"))
    with (scene.root / "log").open("ab") as file:
        file.write(b"ne")
    (scene.root / "a").write_bytes(b"theirs")
    scene.crash()
    scene.open()

    assert (scene.read("log"), scene.read("a")) == (b"old\n", b"theirs")
    assert not scene.is_done()
    check_settled(scene)


def test_a_displaced_edit_that_was_not_judged_is_put_back(scene: Scene) -> None:
    """The kill came between the exchange and the look at what it displaced."""
    path = scene.root / "a"
    path.write_bytes(b"old")
    step = scene.step("replace", "a", b"new")
    scene.group(step)
    rename_over(path, b"theirs")
    syscalls.exchange(step.staging, step.target)
    scene.crash()
    scene.open()

    assert scene.read("a") == b"theirs"
    assert not scene.is_done()
    check_settled(scene)


def test_two_edits_met_an_interrupted_write(scene: Scene) -> None:
    path = scene.root / "a"
    path.write_bytes(b"old")
    step = scene.step("replace", "a", b"new")
    scene.group(step)
    rename_over(path, b"first")
    syscalls.exchange(step.staging, step.target)
    rename_over(path, b"second")
    scene.crash()
    scene.open()

    assert scene.read("a") == b"second"
    assert scene.copies() == [b"first"]
    check_settled(scene)


def test_a_late_edit_of_the_displaced_file_becomes_a_copy(scene: Scene) -> None:
    path = scene.root / "a"
    path.write_bytes(b"old")
    step = scene.step("replace", "a", b"new")
    made = scene.group(step)
    store.make(step)
    scene.journal.commit([], visible=[(made.id, [])])
    Path(step.staging).write_bytes(b"late")
    scene.crash()
    scene.open()

    assert scene.read("a") == b"new"
    assert scene.copies() == [b"late"]
    check_settled(scene)


@pytest.mark.parametrize("person", [NOBODY, lambda p: p.unlink(), lambda p: rename_over(p, b"theirs")])
def test_a_visible_group_is_left_alone(scene: Scene, person: Person) -> None:
    path = scene.root / "a"
    path.write_bytes(b"old")
    step = scene.step("replace", "a", b"new")
    made = scene.group(step)
    store.make(step)
    store.settle(step)
    scene.journal.commit([], visible=[(made.id, [])])
    person(path)
    before = scene.read("a")
    scene.crash()
    scene.open()

    assert scene.read("a") == before
    assert scene.is_done()
    check_settled(scene)


# The same boot: several steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("edited", [None, "log", "a", "b", "c"])
def test_a_group_is_made_whole_or_taken_back_whole(scene: Scene, made: int, edited: str | None) -> None:
    """Four steps of which some are made; then somebody edits one of the files."""
    (scene.root / "log").write_bytes(b"old\n")
    for name in "ab":
        (scene.root / name).write_bytes(b"old")
    steps = [
        scene.step("append", "log", b"new\n"),
        scene.step("replace", "a", b"new"),
        scene.step("delete", "b"),
        scene.step("create", "c", b"new"),
    ]
    scene.group(*steps)
    for step in steps[:made]:
        store.make(step)
    if edited == "log":
        with (scene.root / "log").open("ab") as file:
            file.write(b"theirs\n")
    elif edited is not None:
        rename_over(scene.root / edited, b"theirs")
    scene.crash()
    scene.open()
    done = scene.is_done()

    number = next((n for n, step in enumerate(steps) if step.path == edited), -1)
    assert done == (edited is None or number < made)
    expected: dict[str, bytes | None] = (
        {"log": b"old\nnew\n", "a": b"new", "b": None, "c": b"new"}
        if done
        else {"log": b"old\n", "a": b"old", "b": b"old", "c": None}
    )
    if edited == "log":
        expected["log"] = (b"old\n" if made == 0 else b"old\nnew\n") + b"theirs\n"
    elif edited is not None:
        expected[edited] = b"theirs"
    assert {name: scene.read(name) for name in expected} == expected
    assert scene.copies() == []
    check_settled(scene)


def test_a_folder_and_a_move(scene: Scene) -> None:
    (scene.root / "from").mkdir()
    (scene.root / "from" / "x").write_bytes(b"x")
    for made in (0, 1, 2):
        folder = scene.step("folder", f"new{made}", files={"a": b"a"})
        source = scene.root / "from"
        now = store.look(str(source))
        assert now is not None
        move = Step("move", str(scene.root), f"to{made}", str(scene.root / f"to{made}"), str(source), now.start)
        scene.group(folder, move, call=f"call{made}")
        for step in (folder, move)[:made]:
            store.make(step)
        scene.crash()
        scene.open()

        assert scene.is_done(f"call{made}")
        assert scene.read(f"new{made}/a") == b"a"
        assert scene.read(f"to{made}/x") == b"x"
        (scene.root / f"to{made}").rename(source)
        check_settled(scene)


def test_a_moved_folder_that_was_moved_on_stays_there(scene: Scene) -> None:
    (scene.root / "a").write_bytes(b"old")
    (scene.root / "from").mkdir()
    now = store.look(str(scene.root / "from"))
    assert now is not None
    replace = scene.step("replace", "a", b"new")
    move = Step("move", str(scene.root), "to", str(scene.root / "to"), str(scene.root / "from"), now.start)
    scene.group(replace, move)
    store.make(replace)
    store.make(move)
    (scene.root / "to").rename(scene.root / "elsewhere")
    scene.crash()
    scene.open()

    assert scene.is_done()
    assert scene.read("a") == b"new"
    assert (scene.root / "elsewhere").is_dir()


# After a power loss ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    kind: str
    disk: Callable[[Path, Step], object]
    """What the power loss, and then somebody, left."""
    left: bytes | None
    done: bool = True
    copies: tuple[bytes, ...] = ()


def make(path: Path, step: Step) -> None:
    store.make(step)


def make_and(act: Person) -> Callable[[Path, Step], object]:
    def both(path: Path, step: Step) -> None:
        store.make(step)
        act(path)

    return both


def _as_it_was(path: Path, content: bytes) -> None:
    """What a power loss leaves of a log: its bytes, with the times of the last sync."""
    before = path.stat()
    with path.open("r+b") as file:
        file.truncate()
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


LOSSES = {
    "replace came through": Loss("replace", make, b"new"),
    "replace was lost": Loss("replace", lambda p, s: None, b"new"),
    "replace was lost, with its staging name": Loss("replace", lambda p, s: os.unlink(s.staging), b"new"),
    "replace was lost, then edited": Loss(
        "replace", lambda p, s: rename_over(p, b"theirs"), b"theirs", False, (b"new",)
    ),
    "replace came through, then edited": Loss(
        "replace", make_and(lambda p: rename_over(p, b"theirs")), b"theirs", False, (b"new",)
    ),
    "replace came through, then cut short by somebody": Loss(
        "replace", make_and(lambda p: p.write_bytes(b"n")), b"n", False, (b"new",)
    ),
    "replace came through, then removed": Loss("replace", make_and(lambda p: p.unlink()), None, False, (b"new",)),
    "create came through": Loss("create", make, b"new"),
    "create was lost": Loss("create", lambda p, s: None, b"new"),
    "create was lost, then somebody's": Loss(
        "create", lambda p, s: p.write_bytes(b"theirs"), b"theirs", False, (b"new",)
    ),
    "delete came through": Loss("delete", make, None),
    "delete was lost": Loss("delete", lambda p, s: None, None),
    "delete was lost, then edited": Loss("delete", lambda p, s: p.write_bytes(b"theirs"), b"theirs", False),
    "append came through": Loss("append", make, b"old\nnew\n"),
    "append was lost": Loss("append", lambda p, s: None, b"old\nnew\n"),
    "append came through in part": Loss("append", lambda p, s: _as_it_was(p, b"old\nne"), b"old\nnew\n"),
    "append left NULs": Loss("append", lambda p, s: _as_it_was(p, b"old\n\0\0\0\0"), b"old\nnew\n"),
    "append left a part and NULs": Loss("append", lambda p, s: _as_it_was(p, b"old\nn\0\0\0"), b"old\nnew\n"),
    "append was lost, then a line of somebody": Loss(
        "append", lambda p, s: p.write_bytes(b"old\ntheirs\n"), b"old\ntheirs\n", False, (b"new\n",)
    ),
    "append left NULs, then touched by somebody": Loss(
        "append", lambda p, s: p.write_bytes(b"old\n\0\0\0\0"), b"old\n\0\0\0\0", False, (b"new\n",)
    ),
    "append came through, then a line of somebody": Loss(
        "append", make_and(lambda p: p.write_bytes(b"old\nnew\ntheirs\n")), b"old\nnew\ntheirs\n"
    ),
    "append: shorter than where ours began": Loss(
        "append", lambda p, s: _as_it_was(p, b"ol"), b"ol", False, (b"new\n",)
    ),
    "append: another file": Loss(
        "append", lambda p, s: rename_over(p, b"theirs\n"), b"theirs\n", False, (b"new\n",)
    ),
    "append: a folder now": Loss("append", lambda p, s: _a_folder(p), None, False, (b"new\n",)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_one_step_after_a_power_loss(scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = LOSSES[name]
    path = scene.root / "a"
    long_ago = 1_000_000_000 * 10**9
    if row.kind != "create":
        path.write_bytes(b"old\n" if row.kind == "append" else b"old")
        os.utime(path, ns=(long_ago, long_ago))
    step = scene.step(row.kind, "a", b"" if row.kind == "delete" else b"new\n" if row.kind == "append" else b"new")
    scene.group(step)
    row.disk(path, step)
    # A person's edit is younger than this boot, and what the power loss left is older.
    monkeypatch.setattr(syscalls, "boot_time_ns", lambda: long_ago + 10**9)
    scene.crash(boot="boot 2")
    scene.open()

    assert (None if path.is_dir() else scene.read("a")) == row.left
    assert scene.is_done() == row.done
    assert tuple(scene.copies()) == row.copies
    if not row.done:
        assert [notice.path for notice in scene.notices()] == ["a"]
    check_settled(scene)


def test_a_chain_of_writes_is_brought_to_its_end(scene: Scene) -> None:
    """Three replaces and two appends, none synced: each version that the disk may hold leads to the last."""
    steps: list[Step] = []
    versions: list[bytes] = [b"zero"]
    (scene.root / "a").write_bytes(b"zero")
    for content in (b"one", b"two", b"three"):
        steps.append(scene.step("replace", "a", content))
        scene.group(steps[-1], call=content.decode())
        store.make(steps[-1])
        versions.append(content)
    scene.crash(boot="boot 2")
    scene.open()
    assert scene.read("a") == b"three"
    assert all(scene.is_done(call) for call in ("one", "two", "three"))
    check_settled(scene)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_log_gets_back_every_line(scene: Scene, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scene.root / "log"
    path.write_bytes(b"old\n")
    lines = [b"line %d\n" % number for number in range(3)]
    for number, line in enumerate(lines):
        step = scene.step("append", "log", line)
        scene.group(step, call=f"{number}")
        store.make(step)
    whole = path.read_bytes()
    cut = len(b"old\n" + b"".join(lines[:kept]))
    os.truncate(path, cut)
    os.truncate(path, len(whole))  # the length came through, the bytes did not
    os.utime(path, ns=(10**9, 10**9))
    monkeypatch.setattr(syscalls, "boot_time_ns", lambda: 2 * 10**9)
    scene.crash(boot="boot 2")
    scene.open()

    assert path.read_bytes() == whole
    assert all(scene.is_done(f"{number}") for number in range(3))
    check_settled(scene)


def test_one_file_edited_does_not_keep_the_others_back(scene: Scene) -> None:
    """Its part of the call is in a conflict copy; the call itself counts as done, so that a repeat does not double the
    rest."""
    for name in "ab":
        (scene.root / name).write_bytes(b"old")
    scene.group(scene.step("replace", "a", b"new"), scene.step("replace", "b", b"new"))
    rename_over(scene.root / "b", b"theirs")
    scene.crash(boot="boot 2")
    scene.open()

    assert (scene.read("a"), scene.read("b")) == (b"new", b"theirs")
    assert scene.copies() == [b"new"]
    assert scene.is_done()
    check_settled(scene)


def test_a_folder_that_was_lost_comes_back(scene: Scene) -> None:
    folder = scene.step("folder", "sessions/one", files={"a": b"a", "deep/b": b"b"})
    scene.group(folder)
    store.make(folder)
    (scene.root / "sessions" / "one" / "deep" / "b").unlink()
    scene.crash(boot="boot 2")
    scene.open()

    assert (scene.read("sessions/one/a"), scene.read("sessions/one/deep/b")) == (b"a", b"b")
    check_settled(scene)


@pytest.mark.parametrize(
    "point", ["recovery.step:1", "recovery.step:2", "visible.before:1", "visible.after:1", "journal.begin:3"]
)
@pytest.mark.parametrize("edited", [False, True])
def test_a_recovery_that_is_cut_off_goes_on(scene: Scene, point: str, edited: bool) -> None:
    """And an edit that comes in between keeps only its own file from coming back."""
    for name in "ab":
        (scene.root / name).write_bytes(b"old")
        step = scene.step("replace", name, b"new")
        scene.group(step, call=name)
    scene.crash(boot="boot 2")
    faults.install(f"{point}=error:EIO")
    with pytest.raises(Exception, match=r"Input/output error|error"):
        scene.open()
    faults.install("")
    if edited:
        rename_over(scene.root / "b", b"theirs")
    scene.crash()
    scene.open()

    assert scene.read("a") == b"new"
    assert scene.read("b") == (b"theirs" if edited else b"new")
    assert scene.is_done("a")
    check_settled(scene)


def test_a_large_log_is_no_obstacle(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MAX_DOCUMENT", 100)
    (scene.root / "log").write_bytes(b"x" * 500 + b"\n")
    scene.group(scene.step("append", "log", b"new\n"))
    scene.crash()
    scene.open()
    assert (scene.read("log") or b"").endswith(b"x\nnew\n")
    scene.group(scene.step("append", "log", b"newer\n"))
    monkeypatch.setattr(syscalls, "boot_time_ns", lambda: 1 << 62)
    scene.crash(boot="boot 2")
    scene.open()

    assert (scene.read("log") or b"").endswith(b"x\nnew\nnewer\n")


# Several roots --------------------------------------------------------------------------------------------------------


def two_roots(scene: Scene, made: int) -> tuple[Path, list[Step]]:
    other = scene.folder / "other"
    other.mkdir()
    for root in (scene.root, other):
        (root / "a").write_bytes(b"old")
        scene.open(root)
    steps = [scene.step("replace", "a", b"new"), scene.step("replace", "a", b"new", root=other)]
    scene.group(*steps)
    for step in steps[:made]:
        store.make(step)
    return other, steps


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("made", [0, 1, 2])
@pytest.mark.parametrize("boot", ["boot 1", "boot 2"])
def test_a_group_of_two_roots_comes_back_in_both(scene: Scene, made: int, first: int, boot: str) -> None:
    other, _ = two_roots(scene, made)
    scene.crash(boot=boot)
    for root in ((scene.root, other), (other, scene.root))[first]:
        scene.open(root)

    assert ((scene.root / "a").read_bytes(), (other / "a").read_bytes()) == (b"new", b"new")
    assert scene.is_done()
    assert scene.journal.pending() == []
    assert list(scene.folder.rglob(".stated-*")) == []


def test_a_group_of_two_roots_is_taken_back_in_both(scene: Scene) -> None:
    other, _ = two_roots(scene, 1)
    rename_over(other / "a", b"theirs")
    scene.crash()
    scene.open()

    assert ((scene.root / "a").read_bytes(), (other / "a").read_bytes()) == (b"old", b"theirs")
    assert not scene.is_done()
    assert list(scene.folder.rglob(".stated-*")) == []


@pytest.mark.parametrize("made", [0, 1, 2])
@pytest.mark.parametrize("boot", ["boot 1", "boot 2"])
def test_a_root_that_is_not_there_keeps_its_changes_pending(scene: Scene, made: int, boot: str) -> None:
    other, _ = two_roots(scene, made)
    away = other.with_name("away")
    other.rename(away)
    scene.crash(boot=boot)
    scene.open()
    assert (scene.root / "a").read_bytes() == b"new"
    assert [step.root for row in scene.journal.pending() for step in row.steps] == [str(other)]
    away.rename(other)
    scene.open(other)

    assert (other / "a").read_bytes() == b"new"
    assert scene.is_done()
    assert scene.journal.pending() == []
    assert list(scene.folder.rglob(".stated-*")) == []


def test_a_root_of_another_process_is_waited_for(scene: Scene) -> None:
    other, _ = two_roots(scene, 1)
    scene.crash()
    another = Scene.__new__(Scene)
    another.folder = scene.folder / "second home"
    another.folder.mkdir()
    another.boot, another.remembered = "boot 1", []
    another.journal = another._journal()
    another.roots = another._roots()
    another.open(other)
    with pytest.raises(StepAside):
        scene.open()
    another.close()
    scene.open()

    assert (scene.root / "a").read_bytes() == b"new"


# Not our past ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "0123456789abcdef /run/other"])
@pytest.mark.parametrize("boot", ["boot 1", "boot 2"])
def test_another_past_is_not_redone(scene: Scene, token: str | None, boot: str) -> None:
    (scene.root / "a").write_bytes(b"old")
    scene.group(scene.step("replace", "a", b"new"))
    before = scene.journal.number()
    scene.crash(boot=boot)
    if token is None:
        os.removexattr(scene.root, syscalls.TOKEN)
    else:
        os.setxattr(scene.root, syscalls.TOKEN, token.encode())
    opened = scene.open()

    assert not opened.ours
    assert scene.read("a") == b"old"
    assert [notice.path for notice in scene.notices() if notice.copy is None] == ["a"]
    assert scene.journal.number() >= CLOCK > before
    assert [name for name in scene.names() if ".stated-" in name] == []


def test_a_folder_in_place_of_another(scene: Scene) -> None:
    (scene.root / "a").write_bytes(b"old")
    step = scene.step("append", "a", b"new\n")
    scene.group(step)
    scene.crash()
    scene.root.rename(scene.folder / "away")
    scene.root.mkdir()
    (scene.root / "a").write_bytes(b"old")
    scene.open()

    assert scene.read("a") == b"old"


# Left-over names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [False, True])
def test_what_was_staged_and_never_committed_is_dropped(scene: Scene, folder: bool) -> None:
    name = scene.root / f".stated-{scene.journal.group_number()}-0.tmp"
    if folder:
        name.mkdir()
        (name / "x").write_bytes(b"x")
    else:
        name.write_bytes(b"never visible")
    scene.crash()
    scene.open()

    assert scene.names() == []
    assert scene.copies() == []


def test_what_a_void_group_staged_is_dropped(scene: Scene) -> None:
    (scene.root / "a").write_bytes(b"old")
    made = scene.group(scene.step("replace", "a", b"new"))
    scene.journal.void([made.id])
    scene.crash()
    scene.open()

    assert scene.names() == ["a"]
    assert scene.copies() == []


def test_what_nobody_knows_under_a_staging_name_is_kept(scene: Scene) -> None:
    (scene.root / "a").write_bytes(b"old")
    step = scene.step("replace", "a", b"new")
    made = scene.group(step)
    store.make(step)
    scene.journal.durable([made.id])
    Path(step.staging).write_bytes(b"an editor's text")
    scene.crash()
    scene.open()

    assert scene.copies() == [b"an editor's text"]
    check_settled(scene)


def test_a_persons_own_name_is_no_staging_name(scene: Scene) -> None:
    for name in (".stated-notes", ".stated-1-0.tmp.bak", "x.stated-1-0.tmp"):
        (scene.root / name).write_bytes(b"mine")
    before = scene.names()
    scene.crash()
    scene.open()

    assert scene.names() == before
