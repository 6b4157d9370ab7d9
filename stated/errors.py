"""Every error a caller can meet, sorted by whose fault it is.

    StatedError
    ├── Usage            the words of the call are wrong                          exit 2
    ├── Refused          the call is well formed; a rule of the format says no    exit 1, nothing was written
    │   ├── Conflict     `if_rev` is stale, or three rounds met other edits        exit 1, nothing was written
    │   └── Reused       a call id that already belongs to another request        exit 1
    ├── Unavailable      the state cannot be reached: carry on without it         exit 3, nothing was written
    │   ├── UnknownOutcome   the answer was lost: repeat with the same id         exit 3
    │   └── Limit        one of the limits in `config.py`                         exit 3
    └── Internal         our own fault; logged under an id, not described         exit 3

An error has three parts that a person reads on one line: the reason, the place, and what to do next. Its JSON-RPC
form carries the same three parts in `data`, beside a stable `kind`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class StatedError(Exception):
    """The base of everything a caller is told. `code` is JSON-RPC's, `status` the exit status of `statectl`."""

    code: ClassVar[int] = -32603
    status: ClassVar[int] = 3
    kind: ClassVar[str] = "internal"

    def __init__(self, reason: str, *, where: str = "", hint: str = "", data: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = where
        self.hint = hint
        self.data = dict(data or {})

    def line(self) -> str:
        """One line for a person: `where: reason; hint`, never more than one line whatever the parts hold."""
        text = f"{self.where}: {self.reason}" if self.where else self.reason
        if self.hint:
            text = f"{text}; {self.hint}"
        return " ".join(text.split())

    def payload(self) -> dict[str, Any]:
        """The `data` member of the JSON-RPC error object."""
        parts = {"kind": self.kind, "where": self.where, "hint": self.hint}
        return {key: value for key, value in parts.items() if value} | self.data


class Usage(StatedError):
    code = -32602
    status = 2
    kind = "usage"


class Refused(StatedError):
    """A rule of the format says no. `problems` are rows `{field, problem, meant}` for programs."""

    code = -32001
    status = 1
    kind = "refused"

    def __init__(
        self,
        reason: str,
        *,
        where: str = "",
        hint: str = "",
        problems: Sequence[Mapping[str, Any]] = (),
        data: Mapping[str, Any] | None = None,
    ) -> None:
        extra = dict(data or {})
        if problems:
            extra["problems"] = [dict(row) for row in problems]
        super().__init__(reason, where=where, hint=hint, data=extra)


class Conflict(Refused):
    code = -32002
    kind = "conflict"


class Reused(Refused):
    code = -32003
    kind = "reused_id"


class Unavailable(StatedError):
    code = -32010
    status = 3
    kind = "unavailable"


class UnknownOutcome(Unavailable):
    code = -32011
    kind = "unknown_outcome"


class Limit(Unavailable):
    """One of the limits in `config.py`; each has its own code."""

    kind = "limit"


class LineTooLong(Limit):
    code = -32020
    kind = "line_too_long"


class TooDeep(Limit):
    code = -32021
    kind = "too_deep"


class BatchTooLong(Limit):
    code = -32022
    kind = "batch_too_long"


class QueueFull(Limit):
    code = -32023
    kind = "queue_full"


class TooManyConnections(Limit):
    code = -32024
    kind = "too_many_connections"


class DocumentTooLarge(Limit):
    code = -32025
    kind = "document_too_large"


class DeadlineExceeded(Limit):
    code = -32026
    kind = "deadline"


class Stopping(Unavailable):
    code = -32012
    kind = "stopping"


class Internal(StatedError):
    code = -32603
    status = 3
    kind = "internal"
