"""What readers see: one published snapshot of whole commits, checked against the disk by `stat`.

What may be relied on:

- A reader never waits for the queue and never writes. What it used together is checked together: either all of it
  belongs to one published state, or the read runs again.
- Files of a group that is being made visible count as unchanged (they are *pinned* to their old version).
- A parsed document is trusted while its `Stat` is the one it was read with and was then old enough; else its bytes are
  compared.
- The one lock here guards dictionaries only; it is never held across a call on a file.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stated import config, store
from stated.documents import json_lines, json_text
from stated.documents.json_lines import JsonLines
from stated.documents.json_text import JsonText
from stated.domain import At, Need, Revision, TextDocument
from stated.journal import Known
from stated.store import ABSENT, Stat

_UNKNOWN = Known(0, ABSENT, "", -1)


@dataclass(slots=True, eq=False)
class Version:
    """One version of one document. `raw` is None where it was never loaded (or was put out of the cache)."""

    stat: Stat | None
    raw: bytes | None
    hash: str = ""
    rev: Revision | None = None
    trusted: bool = False
    json: JsonText | None = None
    lines: JsonLines | None = None

    def as_json(self) -> JsonText:
        if self.json is None:
            self.json = json_text.parse(self.raw)
        return self.json

    def as_lines(self) -> JsonLines:
        if self.lines is None:
            self.lines = json_lines.parse(self.raw)
        return self.lines

    @property
    def exists(self) -> bool:
        return self.stat is not None


def is_trusted(stat: Stat) -> bool:
    """Whether a later write cannot hide behind the same times (the clock of files has a grain)."""
    return time.time_ns() - stat.ctime > config.TRUST_AGE_NS


def absolute(at: At) -> str:
    return os.path.join(at.root, at.path) if at.path else at.root


class Snapshot:
    """The published versions, what the journal knows of each document, and the memory documents."""

    def __init__(self, known: Mapping[At, Known], memory: Mapping[tuple[str, str, str], Any]) -> None:
        self.known = dict(known)
        self.memory = dict(memory)
        self._versions: OrderedDict[At, Version] = OrderedDict()
        self._pinned: dict[At, Version] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def current(self, at: At) -> Version | None:
        """The pinned version, else the published one, else None (nobody looked yet)."""
        return self._pinned.get(at) or self._versions.get(at)

    def is_pinned(self, at: At) -> bool:
        return at in self._pinned

    def pin(self, versions: Mapping[At, Version]) -> None:
        """Before a group is made visible: its files count as these old versions."""
        with self._lock:
            self._pinned.update(versions)

    def unpin(self, places: Iterable[At]) -> None:
        with self._lock:
            for at in places:
                self._pinned.pop(at, None)

    def publish(
        self, versions: Mapping[At, Version], known: Mapping[At, Known], memory: Mapping[tuple[str, str, str], Any]
    ) -> None:
        """A group is visible: its new versions replace the pinned ones, at once."""
        with self._lock:
            # The pins go last: whoever looks without the lock at what is not pinned sees what was published.
            self.known.update(known)
            for at, version in versions.items():
                self._put(at, version)
            for key, value in memory.items():
                if value is None:
                    self.memory.pop(key, None)
                else:
                    self.memory[key] = value
            for at in versions:
                self._pinned.pop(at, None)

    def offer(self, at: At, seen: Version | None, version: Version) -> bool:
        """A reader's own look. Taken only when nothing was published there since it looked."""
        with self._lock:
            if at in self._pinned or self._versions.get(at) is not seen:
                return False
            self._put(at, version)
            return True

    def together(self, used: Mapping[At, Version]) -> bool:
        """Whether all these versions are still the current ones, looked at in one instant."""
        with self._lock:
            return all((self._pinned.get(at) or self._versions.get(at)) is version for at, version in used.items())

    def forget_versions(self, root: str) -> None:
        """The root goes to another owner: what is published of it may be old at once."""
        with self._lock:
            for at in [at for at in self._versions if at.root == root]:
                self._drop(at)

    def forget(self, root: str) -> None:
        with self._lock:
            for at in [at for at in self._versions if at.root == root]:
                self._drop(at)
            for at in [at for at in self.known if at.root == root]:
                del self.known[at]

    def _put(self, at: At, version: Version) -> None:
        self._drop(at)
        self._versions[at] = version
        self._bytes += len(version.raw or b"") + 256
        while self._bytes > config.PARSE_CACHE_BYTES and len(self._versions) > 1:
            self._drop(next(iter(self._versions)))

    def _drop(self, at: At) -> None:
        old = self._versions.pop(at, None)
        if old is not None:
            self._bytes -= len(old.raw or b"") + 256

    def statistics(self) -> dict[str, int]:
        with self._lock:
            return {"documents": len(self._versions), "bytes": self._bytes}


class ReadView:
    """The documents of one reader call.

    `quick`: only what is in the snapshot and still true by `stat`; anything else raises `Slow`, and the call is made
    again in a reader thread. `number` gives a revision to a version that nobody recorded yet, or None; `observed` is
    told of it.
    """

    class Slow(Exception):  # a request to move to a thread
        pass

    def __init__(
        self,
        snapshot: Snapshot,
        domain: str,
        *,
        quick: bool,
        number: Callable[[], int | None],
        observed: Callable[[At, Version], None],
    ) -> None:
        self._snapshot = snapshot
        self._domain = domain
        self._quick = quick
        self._number = number
        self._observed = observed
        self.used: dict[At, Version] = {}

    def consistent(self) -> bool:
        return len(self.used) < 2 or self._snapshot.together(self.used)

    def _version(self, at: At) -> Version:
        version = self.used.get(at)
        if version is None:
            version = self._look(at)
            self.used[at] = version
        return version

    def _look(self, at: At) -> Version:
        path = absolute(at)
        for _ in range(20):
            seen = self._snapshot.current(at)
            if seen is not None and self._snapshot.is_pinned(at):
                if seen.raw is not None or seen.stat is None:
                    return seen
                if self._quick:
                    raise ReadView.Slow
                # A log that was only appended to: its old content is the front of the file.
                found = store.read(path)
                if found is not None and self._snapshot.current(at) is seen:
                    return Version(seen.stat, found[0][: seen.stat.size], rev=seen.rev)
                continue
            now = store.look(path)
            if seen is not None and seen.stat == now and (now is None or (seen.raw is not None and seen.trusted)):
                return seen
            if self._quick:
                raise ReadView.Slow
            version = self._load(at, path, seen)
            if self._snapshot.offer(at, seen, version):
                return version
        raise ReadView.Slow

    def _load(self, at: At, path: str, seen: Version | None) -> Version:
        found = store.read(path)
        known = self._snapshot.known.get(at, _UNKNOWN)
        if found is None:
            if known.rev and known.start != ABSENT:
                self._observed(at, Version(None, None))
            return Version(None, None, trusted=True)
        raw, stat = found
        if seen is not None and seen.stat is not None and seen.raw == raw:
            seen_copy = Version(stat, raw, seen.hash, seen.rev, is_trusted(stat), seen.json, seen.lines)
            return seen_copy
        digest = store.digest(raw)
        version = Version(stat, raw, digest, trusted=is_trusted(stat))
        if known.rev and (known.hash == digest or (not known.hash and known.start == stat.start)):
            version.rev = known.rev
        else:
            version.rev = self._number() or f"sha256:{digest}"
            self._observed(at, version)
        return version

    # Docs -------------------------------------------------------------------------------------------------------------

    def json(self, at: At) -> JsonText:
        return self._version(at).as_json()

    def lines(self, at: At) -> JsonLines:
        return self._version(at).as_lines()

    def text(self, at: At) -> TextDocument:
        version = self._version(at)
        return TextDocument(version.exists, version.raw or b"")

    def exists(self, at: At) -> bool:
        pinned = self._snapshot.current(at) if self._snapshot.is_pinned(at) else None
        return pinned.exists if pinned is not None else os.path.exists(absolute(at))

    def folder(self, at: At) -> tuple[str, ...]:
        return store.names(absolute(at))

    def rev(self, at: At) -> Revision | None:
        version = self._version(at)
        return version.rev if version.exists else None

    def memory(self, kind: str, key: str) -> Any:
        return self._snapshot.memory.get((self._domain, kind, key))


__all__ = ["At", "Need", "ReadView", "Snapshot", "Version", "absolute", "is_trusted"]
