"""What the kernel offers and Python does not: exchange, leases, mount identities, the folder's token.

Every function works on plain paths or descriptors and raises OSError as the `os` module does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import sys

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
TOKEN = "user.stated"
_AT_FDCWD = -100
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)


class Unsupported(OSError):
    """The file system (or this system) has no such call; the caller takes the longer way."""


def _rename(source: str, target: str, flag: int) -> None:
    if _renameat2 is None:
        raise Unsupported(errno.ENOSYS, "renameat2 is not there")
    if _renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag) != 0:
        number = ctypes.get_errno()
        kind = Unsupported if number in _UNSUPPORTED else OSError
        raise kind(number, os.strerror(number), source, None, target)


def exchange(one: str, other: str) -> None:
    """Swap two names in one step. Raises Unsupported where the file system cannot."""
    _rename(one, other, RENAME_EXCHANGE)


def rename_noreplace(source: str, target: str) -> None:
    """Rename, unless the target exists (FileExistsError).

    Without the flag a file is linked and unlinked; a folder is renamed after a look, as `rename` itself refuses a
    target folder that is not empty.
    """
    try:
        _rename(source, target, RENAME_NOREPLACE)
    except Unsupported:
        if os.path.isdir(source):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
            os.rename(source, target)
        else:
            os.link(source, target, follow_symlinks=False)
            os.unlink(source)


def ignore_lease_signal() -> None:
    """A broken lease sends SIGIO, whose default ends the process. Main thread only, once at start."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)


def written_elsewhere(fd: int) -> bool | None:
    """Whether any process has this file open for writing (a read lease is refused then). The lease is given back at
    once.

    None where the question cannot be asked (another owner's file, a file system without leases).
    """
    setlease = getattr(fcntl, "F_SETLEASE", None)
    if setlease is None:
        return None
    try:
        fcntl.fcntl(fd, setlease, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, setlease, fcntl.F_UNLCK)
    return False


def boot_identity() -> str:
    """Changes with every start of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def mount_identity(fd: int) -> str:
    """Which mount a descriptor is on: device and mount id. A file system mounted anew has another one.

    The usual mount id is given again as soon as it is free, to a disk that was pulled out and plugged in again as well,
    so the unique one is asked for first (Linux 6.8).
    """
    device = os.fstat(fd).st_dev
    unique = _unique_mount(fd)
    if unique is not None:
        return f"{device}:u{unique}"
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            for line in file:
                if line.startswith("mnt_id:"):
                    return f"{device}:{line.split()[1]}"
    except OSError:
        pass
    return f"{device}:"


_AT_EMPTY_PATH = 0x1000
_STATX_MNT_ID_UNIQUE = 0x4000
_statx = getattr(_libc, "statx", None)


def _unique_mount(fd: int) -> int | None:
    if _statx is None:
        return None
    found = ctypes.create_string_buffer(256)
    if _statx(fd, b"", _AT_EMPTY_PATH, _STATX_MNT_ID_UNIQUE, found) != 0:
        return None
    mask = int.from_bytes(found.raw[:4], sys.byteorder)
    return int.from_bytes(found.raw[0x90:0x98], sys.byteorder) if mask & _STATX_MNT_ID_UNIQUE else None


def boot_time_ns() -> int:
    """When this boot began, in nanoseconds since the epoch (0: unknown)."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            for line in file:
                if line.startswith("btime"):
                    return int(line.split()[1]) * 1_000_000_000
    except OSError:
        pass
    return 0


def read_token(fd: int) -> str | None:
    """The folder's token, or None where none is set. Raises Unsupported where attributes cannot be kept."""
    if sys.platform != "linux":
        raise Unsupported(errno.ENOTSUP, "no attributes")
    try:
        return os.getxattr(fd, TOKEN).decode("utf-8", "replace")
    except OSError as error:
        if error.errno == errno.ENODATA:
            return None
        if error.errno in _UNSUPPORTED or error.errno in (errno.EPERM, errno.EACCES):
            raise Unsupported(error.errno, "no attributes") from error
        raise


def write_token(fd: int, token: str) -> None:
    if sys.platform != "linux":
        raise Unsupported(errno.ENOTSUP, "no attributes")
    try:
        os.setxattr(fd, TOKEN, token.encode())
    except OSError as error:
        if error.errno in _UNSUPPORTED or error.errno in (errno.EPERM, errno.EACCES, errno.EROFS):
            raise Unsupported(error.errno, "no attributes") from error
        raise
