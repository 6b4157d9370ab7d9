"""Owning a folder: the lock, the token, and what becomes of a folder that is moved or replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stated import faults, roots, syscalls
from stated.errors import Unavailable
from stated.journal import Journal
from stated.roots import OpenRoot, Roots, StepAside

CLOCK = 2_000_000_000


class Owner:
    """One process's journal and roots."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.recovered: list[tuple[str, bool]] = []
        self.journal = Journal(str(path / "journal.db"), boot="boot", clock=lambda: CLOCK)
        self.roots = Roots(self.journal, f"{path}/socket", self.recover, lambda: CLOCK)

    def recover(self, root: OpenRoot, others: Mapping[str, OpenRoot]) -> None:
        self.recovered.append((root.path, root.ours))

    def open(self, path: Path) -> OpenRoot:
        root = self.roots.get(str(path), "trial")
        assert root is not None
        return root

    def token(self, path: Path) -> str:
        return str(next(row["token"] for row in self.journal.roots() if row["root"] == str(path)))

    def close(self) -> None:
        self.roots.close()
        self.journal.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path / "home")
    yield made
    faults.install("")
    made.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path / "other home")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def token_of(path: Path) -> str:
    return os.getxattr(path, syscalls.TOKEN).decode()


def test_opening_is_recovery_once(owner: Owner, folder: Path) -> None:
    first = owner.open(folder)

    assert owner.open(folder) is first
    assert owner.recovered == [(str(folder), True)]
    assert token_of(folder) == f"{owner.token(folder)} {owner.roots._socket}"


def test_what_is_no_folder(owner: Owner, folder: Path) -> None:
    assert owner.roots.get(str(folder / "absent"), "trial") is None
    (folder / "file").touch()
    with pytest.raises(Unavailable, match="not a folder"):
        owner.roots.get(str(folder / "file"), "trial")
    assert owner.journal.roots() == []


def test_one_owner_at_a_time(owner: Owner, other: Owner, folder: Path) -> None:
    owner.open(folder)
    assert roots.owner_of(str(folder)) == "another process"
    with pytest.raises(StepAside) as aside:
        other.open(folder)
    owner.roots.drop(str(folder))
    aside.value.wait()
    root = other.open(folder)

    assert not root.ours  # the other home's token stood there
    assert other.recovered == [(str(folder), False)]
    other.roots.drop(str(folder))
    assert roots.owner_of(str(folder)) == "nobody"


def test_an_owner_that_does_not_give_back(owner: Owner, other: Owner, folder: Path) -> None:
    owner.open(folder)
    with pytest.raises(StepAside):
        other.roots.get(str(folder), "trial", patience=60.0)
    with pytest.raises(Unavailable, match="does not give it back"):
        other.roots.get(str(folder), "trial", patience=0.0)


def test_the_lock_ends_with_its_process(owner: Owner, folder: Path) -> None:
    command = (
        "import os, sys, portalocker\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StepAside):
            owner.open(folder)
        holder.kill()
        holder.wait()
    owner.open(folder)


def test_every_opening_sets_a_new_token(owner: Owner, folder: Path) -> None:
    tokens = set()
    for _ in range(3):
        owner.open(folder)
        tokens.add(token_of(folder).split()[0])
        owner.roots.drop(str(folder))

    assert len(tokens) == 3
    assert all(ours for _, ours in owner.recovered)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_killed_between_the_two_tokens(owner: Owner, folder: Path, before: bool, written: bool) -> None:
    """Whichever of the two came through, it is our past."""
    if before:
        owner.open(folder)
        owner.roots.drop(str(folder))
    faults.install("open.token:1=error:EIO" if not written else "journal.begin:2=error:EIO")
    with pytest.raises(Exception, match=r"Input/output"):
        owner.open(folder)
    faults.install("")
    root = owner.open(folder)

    assert root.ours


@pytest.mark.parametrize("replace", ["another folder", "restored", "moved and back"])
def test_a_folder_that_was_replaced(owner: Owner, folder: Path, replace: str) -> None:
    first = owner.open(folder)
    away = folder.with_name("away")
    folder.rename(away)
    assert not first.still_there()
    assert owner.roots.get(str(folder), "trial") is None
    if replace == "moved and back":
        away.rename(folder)
    else:
        folder.mkdir()
    if replace == "restored":
        os.setxattr(folder, syscalls.TOKEN, b"0123456789abcdef /old/socket")
    again = owner.open(folder)

    assert again is not first
    assert again.ours == (replace == "moved and back")


def test_a_folder_without_attributes_is_ours(owner: Owner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object) -> None:
        raise syscalls.Unsupported(95, "no attributes")

    monkeypatch.setattr(syscalls, "read_token", none)
    monkeypatch.setattr(syscalls, "write_token", none)
    for _ in range(2):
        assert owner.open(folder).ours
        owner.roots.drop(str(folder))


def test_a_recovery_that_fails_leaves_the_root_closed(
    owner: Owner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(root: OpenRoot, others: Mapping[str, OpenRoot]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(owner.roots, "_recover", fail)
    with pytest.raises(OSError, match="Input/output"):
        owner.open(folder)

    assert owner.roots.open_roots == {}
    assert roots.owner_of(str(folder)) == "nobody"


def test_local_file_systems_are_known(owner: Owner, folder: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir():
        pytest.skip("no tmpfs here")
    fd = os.open(shm, os.O_RDONLY)
    try:
        assert roots._is_local(fd)
    finally:
        os.close(fd)
    fd = os.open("/proc", os.O_RDONLY)
    try:
        assert not roots._is_local(fd)
    finally:
        os.close(fd)
