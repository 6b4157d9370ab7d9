"""One call on its way: what the entrances (RPC, command line) hand to the engine, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from stated.domain import Caller, Domain, Operation, Revision


@dataclass(frozen=True, slots=True)
class Call:
    """An operation with its parameters. `id` is the caller's, or made by the entrance; it is never empty for a
    writer."""

    domain: Domain
    operation: Operation
    params: msgspec.Struct
    caller: Caller
    id: str
    if_rev: Revision | None = None
    """A number, `sha256:<hex>` or `absent`: the call is a conflict when its subject is at another revision."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """`result` is JSON-able with `Decimal` numbers; `rev` the call's new revision (None when nothing changed)."""

    result: Any
    status: int = 0
    rev: int | None = None
    hand: tuple[tuple[str, str], ...] = ()


class Service(Protocol):
    """What the core's own operations and the entrances may ask of the engine, in a daemon or in local mode."""

    async def submit(self, call: Call) -> Answer:
        """Run one call. Raises StatedError."""

    async def status(self) -> dict[str, Any]: ...

    async def where(self, domain: Domain, caller: Caller) -> dict[str, Any]:
        """`{root, origin, writable, owner}`; touches nothing."""

    async def roots(self) -> list[dict[str, Any]]: ...

    async def forget(self, root: str) -> dict[str, Any]:
        """Stop remembering a root: its revisions, pending findings and watch. Files stay."""

    async def doctor(self, targets: Sequence[str], caller: Caller) -> list[dict[str, Any]]:
        """Rows `{root, path, line, problem, hint}` over all known roots, or those that `targets` (paths, domain
        names) name."""

    async def log(
        self, path: str | None, since: str | None, limit: int, origin: str | None, caller: Caller
    ) -> dict[str, Any]:
        """`{revisions, more}`, the newest first: of a document, of all below a folder, or of everything."""

    async def show(self, path: str, rev: int, caller: Caller) -> dict[str, Any]:
        """One revision of a document: `{rev, root, path, exists, size, hash, text}`."""

    async def diff(self, path: str, rev: int, to: int | None, caller: Caller) -> dict[str, Any]:
        """`{from, to, same, added, removed, diff}`; without `to`, against what is on the disk."""

    async def blame(self, path: str, caller: Caller) -> dict[str, Any]:
        """`{rev, lines}`: each line with the revision that last changed it."""

    async def restore(self, path: str, rev: int, call: Call) -> Answer:
        """Through the queue: make a document what it was in a revision."""

    async def undo(self, undone: str, call: Call) -> Answer:
        """Through the queue: take back what a call changed, unless it was changed since."""

    async def purge(self, path: str, before: int | None, caller: Caller) -> dict[str, Any]:
        """Drop the content of a document's revisions: `{root, path, revisions, bytes, copies}`."""

    async def announce(self, caller: Caller, session: str, only_lines: bool = False) -> dict[str, Any]:
        """`{lines, session}` for `hook session-start`: every domain's lines; remembers what was announced to the
        session."""

    def request_stop(self) -> None:
        """Begin the orderly stop: finish what was accepted, checkpoint, exit 0."""
