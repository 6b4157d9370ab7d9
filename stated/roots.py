"""The roots this process owns: a lock on each folder's own descriptor, its token, and its recovery as the first task.

What may be relied on: while a root is open here, no other process of this kind writes in it; the lock is the kernel's
and ends with the process. A folder that was renamed away or replaced is noticed before the next group on it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import portalocker

from stated import client_line, syscalls
from stated.errors import Unavailable
from stated.faults import reach
from stated.journal import Journal, Notice
from stated.log import get_logger
from stated.store import Step

_log = get_logger()

_LOCAL_FILE_SYSTEMS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "zfs", "bcachefs", "overlay", "apfs", "hfs"}
)
"""File systems whose `stat` never waits for another machine."""


class StepAside(Exception):  # a request: these calls wait elsewhere, the queue goes on
    """The root cannot be used at once. `wait()` runs in a helper thread and returns when it is worth another try."""

    def __init__(self, reason: str, wait: Callable[[], None]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


@dataclass(slots=True)
class Dirty:
    """What the next checkpoint of a root has to do."""

    groups: set[int] = field(default_factory=set)
    appended: dict[str, int] = field(default_factory=dict)
    """Target → inode of a log that was appended to."""
    folders: set[str] = field(default_factory=set)
    displaced: list[Step] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    """Of conflict copies that were made and are not in the journal yet."""

    def __bool__(self) -> bool:
        return bool(self.groups or self.appended or self.folders or self.displaced or self.notices)


@dataclass(slots=True)
class OpenRoot:
    path: str
    fd: int
    identity: tuple[int, int]
    mount: str
    local: bool
    token: str | None
    domain: str = ""
    ours: bool = True
    """Whether the folder's past is the journal's."""
    dirty: Dirty = field(default_factory=Dirty)
    syncing: Dirty | None = None
    """What the checkpoint that runs now has taken over."""
    lock_files: list[int] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Groups that the files still need the journal for."""
        return len(self.dirty.groups) + (len(self.syncing.groups) if self.syncing is not None else 0)

    def still_there(self) -> bool:
        return self.is_at(self.path)

    def is_at(self, path: str) -> bool:
        """Whether this path leads to the folder that is open here."""
        try:
            found = os.stat(path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity


class Roots:
    """`socket` is where this process can be asked to give a root back ("" in local mode)."""

    def __init__(
        self,
        journal: Journal,
        socket: str,
        recover: Callable[[OpenRoot, Mapping[str, OpenRoot]], None],
        clock: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._socket = socket
        self._recover = recover
        self._clock = clock
        self._asked: dict[str, float] = {}
        self._opening: dict[str, OpenRoot] = {}
        self.open_roots: dict[str, OpenRoot] = {}

    def get(self, path: str, domain: str, patience: float = 3.0) -> OpenRoot | None:
        """The open root, opened now if need be; None when there is no such folder.

        Raises StepAside while another process holds it, Unavailable when it does not give it back within `patience`
        seconds, and JournalFailed.
        """
        root = self.open_roots.get(path)
        if root is not None:
            if root.still_there():
                return root
            self.drop(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise Unavailable("the state directory is not a folder", where=domain) from None
        except OSError as error:
            raise Unavailable(f"the state directory cannot be opened: {error.strerror}", where=domain) from error
        try:
            root = self._own(path, fd, domain, patience)
        except BaseException:
            os.close(fd)
            raise
        return root

    def _own(self, path: str, fd: int, domain: str, patience: float) -> OpenRoot:
        try:
            portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
        except portalocker.AlreadyLocked:
            first = self._asked.setdefault(path, time.monotonic())
            if time.monotonic() - first > patience:
                del self._asked[path]
                raise Unavailable(
                    "another process owns this state directory and does not give it back",
                    where=domain,
                    hint="see `statectl status`, or wait for the call that runs there",
                ) from None
            raise StepAside("owned by another process", lambda: self._ask_back(path)) from None
        except portalocker.LockException as error:
            raise Unavailable(
                f"the state directory cannot be locked: {error}", where=domain, hint="does its file system have locks?"
            ) from error
        self._asked.pop(path, None)
        found = os.fstat(fd)
        root = OpenRoot(
            path, fd, (found.st_dev, found.st_ino), syscalls.mount_identity(fd), _is_local(fd), None, domain
        )
        root.ours = self._settle_past(root, domain)
        self._opening[path] = root
        try:
            # What was interrupted in several roots is finished or taken back in all of them: they are opened together.
            domains = {row["root"]: row["domain"] for row in self._journal.roots()}
            for other in self._journal.partners(path):
                if other not in self._opening and other not in self.open_roots:
                    self.get(other, domains.get(other) or domain, patience)
            self._recover(root, self.open_roots | self._opening)
        finally:
            del self._opening[path]
        self.open_roots[path] = root
        return root

    def _settle_past(self, root: OpenRoot, domain: str) -> bool:
        """Whether the folder's past is the journal's: compare tokens, then set a new one on both sides.

        A folder that was never opened by this journal has no past to redo; one whose token differs belongs to another
        home, a newer journal or another folder.
        """
        recorded = {row["root"]: row["token"] for row in self._journal.roots()}
        try:
            found = syscalls.read_token(root.fd)
            kept = True
        except OSError:
            found, kept = None, False
        found_token = found.split(" ", 1)[0] if found else None
        before = recorded.get(root.path)
        if root.path in recorded:
            ours = not kept or before is None or (found_token or "") in before.split(",")
        else:
            ours = found_token is None
        if not ours:
            self._journal.numbers_from_the_clock()
        opened = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if kept:
            token = secrets.token_hex(8)
            # The journal accepts the old token (or none, where none was) and the new one until the folder surely has
            # it.
            self._journal.put_root(root.path, f"{found_token or ''},{token}" if ours else token, domain, opened)
            reach("open.token")
            try:
                syscalls.write_token(root.fd, f"{token} {self._socket}")
                os.fsync(root.fd)
            except syscalls.Unsupported:
                kept = False
            else:
                root.token = token
        self._journal.put_root(root.path, root.token, domain, opened)
        return ours

    def _ask_back(self, path: str) -> None:
        """In a helper thread: ask the owner to give the root back, then wait until the lock looks free."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            with contextlib.suppress(OSError):
                _, _, socket_path = (syscalls.read_token(fd) or "").partition(" ")
                if socket_path and socket_path != self._socket:
                    client_line.ask(socket_path, "daemon.release", {"root": path}, timeout=2.0)
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                try:
                    portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
                except portalocker.LockException:
                    time.sleep(0.01)
                else:
                    portalocker.unlock(fd)
                    return
        finally:
            os.close(fd)

    def drop(self, path: str) -> None:
        """Close a root: the lock goes with its descriptor. What is dirty stays in the journal."""
        root = self.open_roots.pop(path, None)
        if root is None:
            return
        for step in root.dirty.displaced:
            if step.displaced >= 0:
                os.close(step.displaced)
                step.displaced = -1
        os.close(root.fd)

    def close(self) -> None:
        for path in list(self.open_roots):
            self.drop(path)


def owner_of(path: str) -> str:
    """Who holds a folder's lock, for `where`: `nobody`, or `somebody` (the lock does not tell whom)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return "nobody"
    try:
        portalocker.lock(fd, portalocker.LockFlags.SHARED | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.LockException:
        return "another process"
    else:
        return "nobody"
    finally:
        os.close(fd)


def _is_local(fd: int) -> bool:
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            mount = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split()
                if fields[0] == mount and "-" in fields:
                    return fields[fields.index("-") + 1] in _LOCAL_FILE_SYSTEMS
    except (OSError, StopIteration):
        pass
    return False


__all__ = ["Dirty", "OpenRoot", "Roots", "StepAside", "owner_of"]
