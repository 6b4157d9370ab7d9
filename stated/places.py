"""Where the daemon of a HOME listens, and which process owns that HOME's journal.

What may be relied on:

- `places` is, word for word, the same text here and in the client (a test compares them), so that the two cannot look
  in different places.
- Liveness is an answer: a pid, a file or a listening socket proves nothing.
- A lock is the kernel's and ends with its process; lock files are never removed.
"""

import contextlib
import os
import pwd
import sys
import time
from dataclasses import dataclass
from typing import Final, Literal

from stated import client_line, config
from stated.errors import Unavailable

__all__ = ["Owner", "Taken", "answers", "candidates", "choose", "lock", "make_folder", "ours", "own", "places"]

LONGEST: Final = 103 if sys.platform == "darwin" else 107
"""Bytes of a socket address's path, without the NUL that ends it."""

PROBE: Final = 1.0
"""Seconds that a daemon has to answer whether it is there: the same as a read has."""


# places: begin
def places(env: "dict[bytes, bytes]", home: bytes, own: bool, uid: int, longest: int) -> "list[bytes]":
    """Where the socket of a HOME's daemon may be, the best place first. `own`: HOME is the account's own.

    Any other home has a number in its sockets' names (modulo the largest prime of 64 bits), so that two never meet.
    A path that is longer than a socket's address can be gets a short place.
    """
    name = b"/stated.sock" if own else b"/stated-%016x.sock" % (int.from_bytes(home, "big") % 0xFFFFFFFFFFFFFFC5)
    paths = (
        env.get(b"STATED_SOCKET", b""),
        b"/run/user/%d/stated" % uid + name,
        (env.get(b"XDG_RUNTIME_DIR") or b"-") + b"/stated" + name,
        home + b"/.local/state/stated/run" + name,
    )
    short = b"/tmp/stated-%d/%016x.sock"
    return [
        path if len(path) <= longest else short % (uid, int.from_bytes(path, "big") % 0xFFFFFFFFFFFFFFC5)
        for path in paths
        if path[:1] == b"/"
    ]


# places: end


def ours(folder: bytes, uid: int) -> bool:
    """Whether only this user can have put something there: a real folder of theirs, closed to everybody else."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return found.st_uid == uid and found.st_mode & 0o170077 == 0o040000


def account_home() -> str:
    """The account's own home, whatever HOME says; empty for a uid without an account."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def candidates(env: dict[bytes, bytes], home: str) -> list[bytes]:
    """`places` for this process."""
    account = account_home()
    own = home == account
    if not own and account:
        with contextlib.suppress(OSError):
            own = os.path.samefile(home, account)
    return places(env, os.fsencode(home.rstrip("/")), own, os.getuid(), LONGEST)


def choose(env: dict[bytes, bytes], home: str) -> str:
    """The first place whose folder is ours or can be made. Raises Unavailable."""
    explicit = env.get(b"STATED_SOCKET")
    for path in candidates(env, home):
        folder = os.path.dirname(path)
        base = os.path.dirname(folder)
        inside = folder.startswith(os.fsencode(home).rstrip(b"/") + b"/.local/")
        # Nothing is made in a folder that somebody else could rename ours away from.
        if path == explicit or inside or base == b"/tmp" or ours(base, os.getuid()):
            with contextlib.suppress(Unavailable):
                make_folder(os.fsdecode(path))
                return os.fsdecode(path)
        if path == explicit:
            make_folder(os.fsdecode(path))
    raise Unavailable("no folder for a socket can be made", where=home, hint="is the home's disk writable?")


def make_folder(path: str) -> None:
    """The folder of this socket, closed to others. Raises Unavailable when it is not, or cannot be made."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot be made: {error.strerror}", where=folder) from error
    if not ours(os.fsencode(folder), os.getuid()) or not os.access(folder, os.W_OK | os.X_OK):
        reason = "a socket's folder must be your own and closed to others"
        raise Unavailable(reason, where=folder, hint="chmod 700 it, or use another")


def answers(path: str, patience: float = PROBE) -> bool:
    """Whether a daemon answers at this place."""
    try:
        client_line.ask(path, "rpc.hello", {}, timeout=patience)
    except LookupError:
        return True  # an error is an answer
    except (OSError, ValueError):
        return False
    return True


# Owning ---------------------------------------------------------------------------------------------------------------


class Taken(Exception):  # not a failure: the state is in good hands
    """A daemon that answers owns what was asked for; `socket` is where."""

    def __init__(self, socket: str) -> None:
        super().__init__(socket)
        self.socket = socket


@dataclass(slots=True)
class Owner:
    """A lock that this process holds, until it is closed."""

    fd: int
    path: str

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def announce(self, socket: str) -> None:
        """Say in the lock's file where its owner can be asked."""
        text = os.fsencode(socket) + b"\n" if socket else b""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, text, 0)


def lock(path: str) -> Owner | None:
    """Take the lock that this file stands for; None while another process holds it. Raises Unavailable."""
    import portalocker  # 35 ms, and only a process that will own something needs it

    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        hint = "is the disk full or read-only?"
        raise Unavailable(f"cannot be opened: {error.strerror}", where=path, hint=hint) from error
    try:
        portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        os.close(fd)
        return None
    except portalocker.LockException as error:
        os.close(fd)
        raise Unavailable(f"cannot be locked: {error}", where=path, hint="does its file system have locks?") from error
    return Owner(fd, path)


def own(
    home: str, socket: str, patience: float, *, kind: Literal["daemon", "call"] = "daemon", adopted: bool = False
) -> Owner:
    """Become the owner of this home's journal, waiting for one that is about to leave. `adopted`: the socket is already
    listening, for us, so that nobody else can answer there.

    Raises Taken when a daemon that answers owns it, Unavailable when it stays held in silence or cannot be locked.
    """
    path = config.lock_path(home)
    if not os.path.isdir(home):
        raise Unavailable("HOME is not a folder", where=home)
    try:
        os.makedirs(config.state_home(home), mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot be made: {error.strerror}", where=config.state_home(home)) from error
    end = time.monotonic() + patience
    while True:
        owner = lock(path)
        if owner is not None:
            owner.announce(socket)
            return owner
        with open(path, "rb") as file:
            other = os.fsdecode(file.read(4096).rstrip(b"\n"))
        if other and not (adopted and other == socket) and answers(other, min(PROBE, patience)):
            raise Taken(other)
        if time.monotonic() > end:
            raise Unavailable(
                "another process owns this home's state and does not answer",
                where=path,
                hint="wait for it, or end the `stated` that hangs" if kind == "daemon" else "repeat the call later",
            )
        time.sleep(0.01)
