"""What the kernel is asked, on real files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stated import syscalls


def test_exchange(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    syscalls.exchange(str(one), str(other))

    assert (one.read_text(), other.read_text()) == ("2", "1")
    with pytest.raises(FileNotFoundError):
        syscalls.exchange(str(one), str(tmp_path / "absent"))


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("supported", [True, False])
def test_rename_noreplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, supported: bool) -> None:
    if not supported:
        monkeypatch.setattr(syscalls, "_renameat2", None)
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.mkdir() if kind == "folder" else path.write_text(path.name)
    with pytest.raises(FileExistsError):
        syscalls.rename_noreplace(str(source), str(target))
    assert source.exists()
    target.rmdir() if kind == "folder" else target.unlink()
    syscalls.rename_noreplace(str(source), str(target))

    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_without_renameat2_an_exchange_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_renameat2", None)
    with pytest.raises(syscalls.Unsupported):
        syscalls.exchange(str(tmp_path), str(tmp_path))


def test_a_lease_tells_who_writes(tmp_path: Path) -> None:
    syscalls.ignore_lease_signal()
    path = tmp_path / "a"
    path.write_text("")
    fd = os.open(path, os.O_RDONLY)
    try:
        assert syscalls.written_elsewhere(fd) is False
        with path.open("a"):
            assert syscalls.written_elsewhere(fd) is True
        with path.open():
            assert syscalls.written_elsewhere(fd) is False
        command = "import sys; file = open(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-I", "-c", command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            assert syscalls.written_elsewhere(fd) is True
            writer.communicate()
        assert syscalls.written_elsewhere(fd) is False
    finally:
        os.close(fd)


def test_a_lease_that_cannot_be_had_is_no_answer(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)  # a folder has none
    try:
        assert syscalls.written_elsewhere(fd) is None
    finally:
        os.close(fd)


def test_a_broken_lease_does_not_end_the_process(tmp_path: Path) -> None:
    """Somebody opens the file for writing while the lease is held."""
    path = tmp_path / "a"
    path.write_text("")
    command = (
        "import fcntl, os, sys\n"
        "from stated import syscalls\n"
        "syscalls.ignore_lease_signal()\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)\n"
        "try: os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)\n"
        "except BlockingIOError: print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", command, str(path)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_identities(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    other = os.open("/proc", os.O_RDONLY)
    try:
        assert syscalls.mount_identity(fd) == syscalls.mount_identity(fd)
        assert syscalls.mount_identity(fd) != syscalls.mount_identity(other)
        assert syscalls.mount_identity(fd).startswith(f"{os.fstat(fd).st_dev}:")
    finally:
        os.close(fd)
        os.close(other)
    assert syscalls.boot_identity() == syscalls.boot_identity() != "unknown"
    assert 0 < syscalls.boot_time_ns() < os.stat("/proc/self").st_ctime_ns + 10**9


def test_a_mount_without_unique_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_statx", None)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        device, _, mount = syscalls.mount_identity(fd).partition(":")
        assert device == str(os.fstat(fd).st_dev)
        assert mount.isdigit()
    finally:
        os.close(fd)


def test_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert syscalls.read_token(fd) is None
        syscalls.write_token(fd, "abc /run/socket")
        assert syscalls.read_token(fd) == "abc /run/socket"

        def no_attributes(*args: object) -> None:
            raise OSError(errno.ENOTSUP, "Operation not supported")

        monkeypatch.setattr(os, "getxattr", no_attributes)
        monkeypatch.setattr(os, "setxattr", no_attributes)
        with pytest.raises(syscalls.Unsupported):
            syscalls.read_token(fd)
        with pytest.raises(syscalls.Unsupported):
            syscalls.write_token(fd, "abc")
    finally:
        os.close(fd)
