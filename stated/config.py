"""The limits, the configuration file, and where a home's own files lie.

What may be relied on: every limit is a constant here with its reason beside it, and nowhere else; every path is made
from the home that is given, never from this process's environment; a configuration that cannot be used gives one clear
line that names the file, the place and what is allowed there.
"""

from __future__ import annotations

import os
from typing import Annotated, Final, Literal

import msgspec

from stated.errors import Unavailable

MIB: Final = 1024 * 1024

# What one message may be ----------------------------------------------------------------------------------------------

MAX_LINE: Final = 16 * MIB
"""Bytes of one message. State documents are kilobytes; a line that never ends must not fill the memory."""

MAX_DEPTH: Final = 64
"""Nesting of messages and documents. The contracts stay below ten; orjson reads 1024 levels but writes only 254, so
without a limit of ours a document could be read and never written again."""

MAX_BATCH: Final = 1000
"""Entries of one JSON-RPC batch: its answer is one line and is kept until its last entry is done."""

MAX_CONNECTIONS: Final = 512
"""Open connections. A call holds one for milliseconds; half of the usual 1024 descriptors stay free for files."""

MAX_QUEUE: Final = 10_000
"""Calls that wait for the writer. About a second's work of batches; more waiting would only miss its deadline."""

# What one document may be ---------------------------------------------------------------------------------------------

MAX_DOCUMENT: Final = 64 * MIB
"""Bytes of a document that is parsed. Ten megabytes take 70 ms; this is half a second, and an append reads nothing."""

PARSE_CACHE_BYTES: Final = 64 * MIB
"""Bytes of documents that are kept parsed, as they are on the disk (the objects take a few times as much). It holds
every document of a person's skills; what is used least recently goes first."""

HISTORY_BYTES: Final = 256 * MIB
"""Default bound of the history in the journal. Changed ranges are small: this is years of a person's use."""

HISTORY_ROWS: Final = 200_000
"""Rows of the history, with and without content. A row takes some 200 bytes: `log` tells who changed what for longer
than the content can be shown, and the journal still has an end."""

HISTORY_SLACK: Final = 10
"""When the history is over its bound, a tenth of the bound is made free at once, so that this is rarely to be done."""

HISTORY_STEP: Final = 0.02
"""Seconds that the queue gives to this at a time."""

DISPLACED_MAX: Final = 128
"""Displaced files that are watched until the checkpoint, one descriptor each; at this number a checkpoint begins."""

# How long something may take (seconds, on the monotonic clock) --------------------------------------------------------

READ_DEADLINE: Final = 1.0
"""A read goes round the queue: one that has no answer by now meets a daemon that hangs."""

WRITE_DEADLINE: Final = 10.0
"""A write may wait for another program's lock, for an editor that saves, for a slow disk's sync."""

HOOK_DEADLINE: Final = 0.3
"""A session's start waits for its hook: what cannot be said in this time is left out."""

CHECKPOINT_IDLE: Final = 0.05
"""After the last commit. Long enough to gather a burst, short enough that a power cut rarely meets an open window."""

CHECKPOINT_BUSY: Final = 1.0
"""Under load. What the journal must bring back after a power cut is at most this much."""

QUIET_WAIT: Final = 2.0
"""How long a change waits for another program to close the file it is writing. Editors save in milliseconds; a program
that keeps a file open for ever must not hold the queue of its root."""

STUCK_AFTER: Final = 2.0
"""A call on a state file that is not back by now (a dead mount) keeps its root; a fresh writer takes the others."""

TRUST_AGE_NS: Final = 20_000_000
"""A file changed within these nanoseconds before it was read may change again under the same ctime: the kernel's clock
for files moves in ticks of 1 to 10 ms. Such a file's bytes are compared instead."""

STOP_DEADLINE: Final = 8.0
"""How long an orderly stop waits for accepted calls. Below systemd's 90 s and the 10 s that a write is given."""

UPKEEP_EVERY: Final = 300.0
"""Between two looks of a domain at what falls due in a root with nobody calling (a run that was never finished)."""

# What is remembered ---------------------------------------------------------------------------------------------------

ID_KEEP_SECONDS: Final = 7 * 24 * 3600
"""How long a done call's id is known. A day is promised; a week lets Friday's caller repeat its call on Monday."""

REV_BLOCK: Final = 1000
"""Revision numbers reserved at once, so that a read that meets an outside edit has a number without a write."""

# Watching (hints only: every read and write looks at the file itself) -------------------------------------------------

WATCH_STEP: Final = 1.0
"""Between two looks at what inotify gathered. Waking once a second costs 0.005 % of a core when idle."""

WATCH_POLL: Final = 2.0
"""Between two scans of folders whose file system sends no events."""

WATCH_RECHECK: Final = 60.0
"""Between two checks that the watched folders are still those at their paths: a renamed parent sends nothing."""

WATCH_BACKOFF_MAX: Final = 60.0
"""The longest wait before a failed watch is tried again; the first is `WATCH_STEP`, and each is twice the last."""

# Logging --------------------------------------------------------------------------------------------------------------

LOG_LINE: Final = 4096
"""Bytes of one log line: a pipe that says it can be written takes this much without blocking (PIPE_BUF)."""

LOG_VALUE: Final = 300
"""Characters of one value in a log line: a path or an operation's name is shorter."""


# Where a home's own files lie -----------------------------------------------------------------------------------------


def config_path(home: str) -> str:
    return os.path.join(home, ".config", "stated", "config.toml")


def state_home(home: str) -> str:
    """The folder of everything the daemon keeps for itself."""
    return os.path.join(home, ".local", "state", "stated")


def journal_path(home: str) -> str:
    return os.path.join(state_home(home), "journal.db")


def lock_path(home: str) -> str:
    """The lock that makes one process the owner of the journal. It is never unlinked."""
    return os.path.join(state_home(home), "lock")


def conflicts_path(home: str) -> str:
    """The folder of conflict copies: what could be joined with nothing and must not be lost."""
    return os.path.join(state_home(home), "conflicts")


# The configuration file -----------------------------------------------------------------------------------------------


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`~/.config/stated/config.toml`. Every member may be left out."""

    durability: Literal["journal", "file"] = "journal"
    """`file` syncs the state files before every answer; `journal` syncs the journal then and the files soon after."""

    history_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = HISTORY_BYTES
    """Bound of the history in the journal; 0 keeps none."""

    watch: Literal["auto", "inotify", "poll", "off"] = "auto"
    """How edits by others are noticed early. Whatever it is, every read and write looks at the file itself."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"


def load(home: str) -> Config:
    """The configuration of a home; the defaults when there is no file. Raises Unavailable: the caller's words are not
    at fault, and no state can be reached until the file is put right."""
    path = config_path(home)
    try:
        with open(path, "rb") as file:
            raw = file.read(MIB + 1)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise Unavailable(error.strerror or "cannot be read", where=path, hint="make it a readable file") from None
    return parse(raw, path)


def parse(raw: bytes, path: str) -> Config:
    """The configuration that these bytes hold; `path` is only named in errors."""
    import tomllib  # here, as a home without the file (the usual one) needs no TOML parser: 5 ms of every local call

    hint = f"put it right or remove it; allowed are {', '.join(Config.__struct_fields__)}"
    try:
        if len(raw) > MIB:
            raise ValueError("larger than 1 MiB")
        return msgspec.convert(tomllib.loads(raw.decode("utf-8-sig")), Config)
    except UnicodeDecodeError as error:
        raise Unavailable(f"not UTF-8 at byte {error.start}", where=path, hint=hint) from None
    except msgspec.ValidationError as error:
        reason = str(error).replace("`$.", "`").replace("Object contains", "it has an")
        raise Unavailable(reason, where=path, hint=hint) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Unavailable(f"not TOML: {reason}", where=path, hint=hint) from None
