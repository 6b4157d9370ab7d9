"""Early notice of edits by others, as hints only.

What may be relied on: for every change of an entry of a watched folder `on_hint` is called with the entry's path, from
this watcher's thread, within about two `WATCH_STEP`s (`WATCH_POLL`s where the file system sends no events). A folder
that just came under watch (for the first time, again after it was made, moved or replaced, or after an error) is hinted
itself: anything in it may have changed.

What may not be relied on: that no hint is missing (inotify drops events without a word when its queue is full), that a
hint means a change, or that there is one hint a change. So every read and write looks at the file itself, and a hint
only makes that look come early.

Theory of operation. Only folders are watched, each by itself: a watch on a file dies with the first atomic replace, and
a recursive one misses files in folders that are made with them. For each wanted folder its parent (or the nearest one
that exists) is watched too, as a folder's own watch dies with it in silence; an event there that concerns a wanted
folder makes the watch anew. A new watch begins before the old one ends. One thread asks RustNotify what it gathered,
once a `WATCH_STEP`, rather than wait inside it: there a stop would take a step to be noticed.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, TypeAlias

from watchfiles._rust_notify import RustNotify

from stated.config import WATCH_BACKOFF_MAX, WATCH_POLL, WATCH_RECHECK, WATCH_STEP
from stated.log import get_logger

Mode: TypeAlias = Literal["auto", "inotify", "poll", "off"]
_Identity: TypeAlias = tuple[int, int] | None

_log = get_logger("stated.watch")

_SILENT_FILE_SYSTEMS = frozenset("nfs nfs4 cifs smb3 smbfs 9p afs ceph vboxsf virtiofs drvfs".split())
"""File systems where another machine's edits send no event here; so does everything under FUSE."""

_MODIFIED = 2
"""RustNotify's kinds: 1 added, 2 modified, 3 deleted."""

_STORM = 500
"""More changes than this in one look are told as their folders: whoever takes hints has better to do."""

_HINT_ADVICE = 'raise the sysctl fs.inotify.max_user_watches or fs.inotify.max_user_instances, or set watch = "poll"'


class Watcher:
    """Watches the folders given last. `set_folders` and `stop` return at once; the work is in a thread of its own."""

    def __init__(self, on_hint: Callable[[str], None], mode: Mode = "auto", *, step: float = WATCH_STEP) -> None:
        self._on_hint = on_hint
        self._mode = mode
        self._step = step
        self._changed = threading.Condition()
        self._wanted: frozenset[str] = frozenset()
        self._dirty = False
        self._stopping = False
        self._watch = _Watch(frozenset(), {}, [])
        self._old: list[_Watch] = []
        """Replaced, and looked at once more: what happened before their follower was armed is only known to them."""
        self._renewed: set[str] = set()
        """Wanted folders that were made, moved or removed since they were armed."""
        self._limited = False
        """Inotify's limit was met, and may be tried again when the folders change."""
        self._errors = 0
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="stated-watch", daemon=True)
        """A daemon thread, as a dead mount may keep it for ever and must not keep the process."""
        if mode != "off":
            self._thread.start()

    def set_folders(self, folders: frozenset[str]) -> None:
        """Watch exactly these folders (absolute paths). They need not exist: one that is made later is watched then."""
        with self._changed:
            if folders != self._wanted:
                self._wanted = folders
                self._dirty = True
                self._changed.notify()

    def stop(self) -> None:
        """Begin to end. No hint comes after this returns, except one that is being given right now."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def close(self, deadline: float = 2.0) -> None:
        """End, and wait for the thread (not for ever: it may be stuck on a dead mount)."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(deadline)

    def state(self) -> dict[str, Any]:
        """For `statectl status`: how the folders are watched, and which are not."""
        with self._changed:
            watch = self._watch
            return {
                "mode": "off" if self._mode == "off" else watch.kind(),
                "folders": len(self._wanted),
                "missing": sorted(path for path in self._wanted if watch.identities.get(path) is None),
                "unwatched": watch.left_out,
                "errors": self._errors,
                "problem": self._problem,
            }

    # The thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        checked = time.monotonic()
        while self._pause():
            try:
                while self._old:
                    self._look(self._old[0])
                    self._old.pop(0).close()
                if self._dirty:
                    self._rearm()
                    checked = time.monotonic()
                self._look(self._watch)
                if time.monotonic() - checked > WATCH_RECHECK:
                    checked = time.monotonic()
                    self._dirty = self._dirty or _identities(self._watch.wanted) != self._watch.identities
                    self._calm()
            except Exception as error:  # whatever the native part or the file system came up with: begin again
                self._fail(error)
        for watch in (*self._old, self._watch):
            watch.close()

    def _pause(self) -> bool:
        """Wait for a step, a change of the folders or the stop; False at the stop."""
        with self._changed:
            wait = self._step
            if self._dirty and self._errors:
                wait = min(self._step * 2.0 ** min(self._errors, 16), WATCH_BACKOFF_MAX)
            if not self._stopping and (self._errors or not self._dirty):
                self._changed.wait(wait if self._wanted else None)
            return not self._stopping

    def _fail(self, error: Exception) -> None:
        for watch in (*self._old, self._watch):
            watch.close()
        self._old.clear()
        with self._changed:
            self._watch = _Watch(self._watch.wanted, {}, [])
            self._errors += 1
            self._dirty = True
            self._problem = f"{type(error).__name__}: {error}"
        if self._errors == 1:
            _log.warning("watching failed and begins again", problem=self._problem)

    def _calm(self) -> None:
        """Forget earlier errors when none came for a `WATCH_RECHECK`; until then they lengthen the wait and are not
        logged again: a file name that cannot be told fails the watch each time the file changes."""
        if self._errors and not self._dirty:
            with self._changed:
                self._errors = 0
                self._problem = ""
            _log.info("watching works again")

    def _rearm(self) -> None:
        """Watch anew; then hint each folder that is new, or another one than before."""
        with self._changed:
            wanted = self._wanted
            self._limited = self._limited and wanted == self._watch.wanted
            self._dirty = False
        old = self._watch
        new = self._open(wanted)
        self._old.append(old)
        with self._changed:
            self._watch = new
            if not (self._limited or self._errors):
                self._problem = ""
        renewed, self._renewed = self._renewed, set()
        for path in sorted(wanted):
            if path in renewed or new.identities[path] != old.identities.get(path):
                self._hint(path)

    def _open(self, wanted: frozenset[str]) -> _Watch:
        identities = _identities(wanted)
        native, polled, left_out = self._plan(wanted)
        notifies: dict[Literal["inotify", "poll"], RustNotify] = {}
        try:
            if native:
                try:
                    notifies["inotify"] = _notify(native, polling=False)
                except OSError as error:
                    if not _is_limit(error):
                        raise
                    self._meet_limit(error)
                    polled = polled | native if self._mode == "auto" else polled
            if polled:
                notifies["poll"] = _notify(polled, polling=True)
        except BaseException:
            for notify in notifies.values():
                notify.close()
            raise
        return _Watch(wanted, identities, left_out, notifies)

    def _plan(self, wanted: Iterable[str]) -> tuple[set[str], set[str], list[str]]:
        """The folders to watch through inotify, those to poll, and the wanted ones that cannot be watched."""
        native: set[str] = set()
        polled: set[str] = set()
        left_out: set[str] = set()
        silent = _silent_devices() if self._mode == "auto" else frozenset[int]()
        for path in sorted(wanted):
            for folder in _with_parent(path):
                if not _can_be_watched(folder):
                    left_out.add(folder)
                elif self._mode == "poll" or (self._limited and self._mode == "auto") or _device(folder) in silent:
                    polled.add(folder)
                else:
                    native.add(folder)
        return native, polled, sorted(left_out)

    def _meet_limit(self, error: OSError) -> None:
        self._limited = True
        after = "polling instead" if self._mode == "auto" else "not watching"
        text = f"inotify's limit was met, {after}: {_HINT_ADVICE}"
        if text != self._problem:
            _log.warning("inotify's limit was met", then=after, advice=_HINT_ADVICE, problem=str(error))
        self._problem = text

    def _look(self, watch: _Watch) -> None:
        """Pass on what was gathered since the last look."""
        for notify in watch.notifies.values():
            # Both times 1 ms: `watch` answers at once. It would wait for changes with 0.
            changes = notify.watch(1, 1, 1, None)
            told = changes if isinstance(changes, set) else set[tuple[int, str]]()
            if len(told) > _STORM:
                told = {row if row[1] in watch.wanted else (_MODIFIED, os.path.dirname(row[1])) for row in told}
            for kind, path in sorted(told):
                self._sort(kind, path, watch)

    def _sort(self, kind: int, path: str, watch: _Watch) -> None:
        if path in watch.wanted:
            if kind == _MODIFIED:
                self._hint(path)
            else:  # made, moved or removed: its watch is dead, also when a new folder got the old one's inode
                self._dirty = True
                self._renewed.add(path)
        elif os.path.dirname(path) in watch.wanted:
            if not _is_ours(path):
                self._hint(path)
        elif any(other.startswith(path + "/") for other in watch.wanted):
            self._dirty = True

    def _hint(self, path: str) -> None:
        if self._stopping:
            return
        try:
            self._on_hint(path)
        except Exception:  # the reader of hints is at fault; watching goes on
            _log.exception("a hint was not taken", path=path)


class _Watch:
    """What is watched at one time: an inotify instance, a scanner, both or none."""

    def __init__(
        self,
        wanted: frozenset[str],
        identities: dict[str, _Identity],
        left_out: list[str],
        notifies: dict[Literal["inotify", "poll"], RustNotify] | None = None,
    ) -> None:
        self.wanted = wanted
        self.identities = identities
        self.left_out = left_out
        self.notifies = notifies or {}

    def kind(self) -> str:
        return "+".join(self.notifies) or "off"

    def close(self) -> None:
        for notify in self.notifies.values():
            notify.close()
        self.notifies = {}


def _notify(folders: Collection[str], *, polling: bool) -> RustNotify:
    # `ignore_permission_denied` would hide every error, also that of a limit: it stays off, and `_plan` looks first.
    try:
        return RustNotify(sorted(folders), False, polling, int(WATCH_POLL * 1000), False, False)
    except RuntimeError as error:
        # The only word of a full instance table is the text.
        if "os error 24" in str(error):
            raise OSError(errno.EMFILE, str(error)) from None
        raise


def _is_limit(error: OSError) -> bool:
    """A full instance table, or a full table of watches (which comes without a number)."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOSPC) or "watch limit" in str(error)


def _is_ours(path: str) -> bool:
    """Staging names of the daemon's own commits."""
    name = os.path.basename(path)
    return name.startswith(".stated-") and name.endswith(".tmp")


def _with_parent(path: str) -> list[str]:
    """The folder, when there is one, and the nearest folder above it that exists."""
    folders = [path] if os.path.isdir(path) else []
    above = os.path.dirname(path)
    while not os.path.isdir(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    return [*folders, above]


def _can_be_watched(folder: str) -> bool:
    """Inotify needs a readable folder, RustNotify a path that is UTF-8."""
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return os.access(folder, os.R_OK | os.X_OK)


def _identity(path: str) -> _Identity:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _identities(paths: Iterable[str]) -> dict[str, _Identity]:
    return {path: _identity(path) for path in paths}


def _device(path: str) -> int:
    found = _identity(path)
    return found[0] if found else 0


def _silent_devices() -> frozenset[int]:
    """The devices of mounts whose file system does not tell of all edits."""
    devices: set[int] = set()
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            rows = file.read().splitlines()
    except OSError:
        return frozenset()
    for row in rows:
        before, _, after = row.partition(" - ")
        kind = after.split(" ", 1)[0]
        if kind in _SILENT_FILE_SYSTEMS or kind.split(".", 1)[0] in ("fuse", "fuseblk"):
            major, _, minor = before.split(" ")[2].partition(":")
            devices.add(os.makedev(int(major), int(minor)))
    return frozenset(devices)
