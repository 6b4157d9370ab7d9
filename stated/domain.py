"""The contract between the core and a domain.

A domain is a table of operations over documents. Its functions are pure: documents and parameters in, an outcome out;
no file is opened, no clock is read, nothing is random. What the core promises them:

- `run(docs, params, context)` sees the documents as the calls before it left them, and nothing else changes them until
  its outcome is on the disk. It may be run several times for one call (when it asks for a document that was not loaded
  yet, or when somebody edited a file in between), so it must not keep anything between two runs.
- A document that `run` asks for and that is not there yet is loaded, and `run` starts again: asking is the only
  declaration (`docs` raises `Need`, which `run` lets pass).
- Raising `Refused` fails this call alone; nothing is written.
- All changes of one outcome become visible together or not at all.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from stated.documents.json_lines import JsonLines
from stated.documents.json_text import JsonText
from stated.errors import Conflict, Refused, Unavailable, Usage

__all__ = [
    "Append",
    "At",
    "Caller",
    "Change",
    "Conflict",
    "Context",
    "Create",
    "Delete",
    "Docs",
    "DocumentKind",
    "Domain",
    "EditLine",
    "Finding",
    "Kind",
    "Location",
    "MakeFolder",
    "MemoryKind",
    "Move",
    "Need",
    "Operation",
    "Outcome",
    "Refused",
    "Remember",
    "Unavailable",
    "Usage",
    "Write",
]

Revision = int | str
"""A document's revision: a number from the journal, or `sha256:<64 hex>` where no journal is at hand."""


class At(NamedTuple):
    """A place: an absolute root folder, and a path below it with `/` between its parts."""

    root: str
    path: str


@dataclass(frozen=True, slots=True)
class Caller:
    """What a call brings with it. `env` holds only the forwarded variables, never the daemon's own environment."""

    home: str
    cwd: str | None
    env: Mapping[str, str] = field(default_factory=dict)
    tty: bool = False
    width: int = 80
    version: str = ""
    pid: int = 0
    """The client's process, as the kernel tells it (0: not known)."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a domain's state is for one caller (`where DOMAIN`)."""

    root: str
    origin: Literal["env", "announced", "default", "argument"]


@dataclass(frozen=True, slots=True)
class Context:
    """What a pure function may know besides its documents. `now` is aware and in UTC, taken once per call."""

    now: datetime
    zone: tzinfo
    caller: Caller
    call: str
    root: str
    """The root that `Domain.locate` gave for this caller."""
    if_rev: Revision | None = None
    """The revision the caller read and decided on. The core refuses a stale one by itself, after `run`; an operation
    looks at it to ask for it, or to say more than that the document has changed."""


# What a call may do to files -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Replace the document by these bytes, or create it. It starts from the version that `docs` showed."""

    at: At
    content: bytes


@dataclass(frozen=True, slots=True)
class Create:
    """Create only: an existing file makes the call a conflict."""

    at: At
    content: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """Add one line (with its line ending) at the end. The file is created when absent and never read."""

    at: At
    line: bytes


@dataclass(frozen=True, slots=True)
class EditLine:
    """Replace the bytes of one line (without its ending); every other byte stays. `number` counts from 1."""

    at: At
    number: int
    old: bytes
    new: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    at: At


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """Make a folder with these files in a staging place beside it, then rename it: seen whole or not at all."""

    at: At
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Move:
    """Move a folder (or a file) within one file system. The target must not exist."""

    source: At
    target: At


@dataclass(frozen=True, slots=True)
class Remember:
    """Set a memory document of this domain (None forgets it)."""

    kind: str
    key: str
    value: Any


Change = Write | Create | Append | EditLine | Delete | MakeFolder | Move | Remember


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call decided.

    `result` is JSON-able (Decimal allowed). The core adds `rev`, the call's new revision, when there are changes; else
    the operation gives the revision of the document it read. `subject` is the document that `if_rev` speaks of (left
    out: the first changed one). `status` is the exit status (0, or 1 for "a check found something").
    `hand` asks the caller's process to append a text to the file that one of the caller's variables names.
    """

    result: Any
    changes: tuple[Change, ...] = ()
    status: int = 0
    subject: At | None = None
    hand: tuple[tuple[str, str], ...] = ()


class Need(Exception):  # not an error: a request for more input, let through by every pure function
    """A document that was asked for and is not loaded. Raised by `Docs`, answered by the core."""

    def __init__(self, at: At | None, form: str, memory: tuple[str, str] | None = None) -> None:
        super().__init__(at, form, memory)
        self.at = at
        self.form = form
        self.memory = memory


class TextDocument(NamedTuple):
    """A document that the core does not parse."""

    exists: bool
    raw: bytes


class Docs(Protocol):
    """The documents of one call. Every method may raise `Need`."""

    def json(self, at: At) -> JsonText: ...
    def lines(self, at: At) -> JsonLines: ...
    def text(self, at: At) -> TextDocument: ...
    def exists(self, at: At) -> bool:
        """Whether there is a file or folder, without reading it."""

    def folder(self, at: At) -> tuple[str, ...]:
        """The names in a folder, sorted, a folder's own name ending in `/`; empty when it is absent. `At(root, "")`
        is the root itself. Staging names are left out."""

    def rev(self, at: At) -> Revision | None:
        """The revision of a document that was loaded (None: absent)."""

    def memory(self, kind: str, key: str) -> Any:
        """A memory document of this domain, or None."""


# The table ------------------------------------------------------------------------------------------------------------


class Kind(enum.Enum):
    READER = "R"
    WRITER = "W"
    MEMORY = "M"


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of a domain's table: the source of its flags, its help, its RPC method, its schema and its documentation.

    `params` is a msgspec Struct (kw_only). A field's `Annotated[T, Meta(description=…, extra={…})]` says how it looks
    on a command line; see `stated.params`. `examples` are command lines without `statectl`.
    """

    name: str
    kind: Kind
    summary: str
    params: type[msgspec.Struct]
    run: Callable[[Docs, Any, Context], Outcome] | None = None
    serve: Callable[[Any, Any, Context], Awaitable[Outcome]] | None = None
    """For the core's own operations (`stated.core`) in place of `run`: `(service, params, context)`."""
    queue: Callable[[Any, Any], Awaitable[Any]] | None = None
    """For the core's own writers whose call goes through the queue: `(service, call)` gives the call's answer. They
    take the flags of every command that writes."""
    method: str = ""
    """The JSON-RPC method where it is not made from the domain's and the operation's name."""
    details: str = ""
    examples: tuple[str, ...] = ()
    roots: Callable[[Any, Location, Caller], tuple[str, ...]] | None = None
    """The roots a call may touch; left out: the domain's located root."""
    human: Callable[[Any, int], str] | None = None
    """Draws the result for a terminal of that width; left out: a table drawn from the JSON."""
    text: Callable[[Any], str] | None = None
    """The default output where it is not JSON (`--json` still gives JSON)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a contract check found in a file on disk."""

    problem: str
    line: int | None = None
    field: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of file in a root: which paths, which format, and the contract as a check of its parsed content."""

    name: str
    pattern: str
    """A glob over the path below the root; `*` does not cross a `/`."""
    form: Literal["json", "lines", "text"]
    title: str
    check: Callable[[Any, At], Sequence[Finding]]
    """Gets a JsonText, JsonLines or TextDocument that exists and parses; pure."""


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """Something that must be remembered and has no file; `loss` is a sentence saying what its loss means."""

    name: str
    title: str
    loss: str


@dataclass(frozen=True, slots=True)
class Announcement:
    """A domain's part of `hook session-start`: the lines of one domain, and what is remembered of the session."""

    lines: tuple[str, ...]
    changes: tuple[Remember, ...] = ()


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    title: str
    summary: str
    operations: tuple[Operation, ...]
    locate: Callable[[Caller, str | None], Location]
    """`(caller, root announced to the caller's session or None)` → where the state is. Raises Refused or
    Unavailable."""
    documents: tuple[DocumentKind, ...] = ()
    memories: tuple[MemoryKind, ...] = ()
    options: tuple[str, ...] = ()
    """Names of parameters that every operation has and that a command line may give before the operation's words."""
    announce: Callable[[Docs, Context, Location], Announcement] | None = None
    upkeep: Operation | None = None
    """A writer without parameters that the core runs in the queue for each root when it is opened and every few
    minutes: for what falls due with nobody calling."""
    fallback_line: str = ""
    """What a SessionStart hook prints where no daemon answers; `{root}` is replaced. Needs `state_dir_variable`."""
    state_dir_variable: str = ""
    default_root: str = ""
    """Relative to HOME. With `state_dir_variable` it lets the shim say where the state is without a daemon."""
    locks: tuple[str, ...] = ()
    """Names of lock files (below a root) that older programs take, held by the core while it writes there."""
    unavailable_status: int = 3
    """The exit status of this domain's commands when the state is unavailable."""
    takes_over: bool = False
    """The commands keep an older tool's interface (`<name>-state`): JSON always, no write flags, its own exit codes."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Choices this domain made where its contract is silent: title → sentence (README section, `help`)."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """What a group of commands is for: its words without the domain's name → one sentence (`help`)."""
