"""The core's own commands and methods: the rows of the table that belong to no domain.

Their `serve` functions ask the `Service` and shape its answers; they open nothing themselves. `help` and `rpc` are rows
without a function: they exist for their flags and their help, and `stated.cli` acts on them.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, cast

import msgspec

from stated import __version__, config
from stated.call import Answer, Call, Service
from stated.documents import json_text, table
from stated.domain import Caller, Context, Domain, Kind, Location, Operation, Outcome
from stated.errors import Refused, StatedError, Usage
from stated.params import shown

__all__ = ["CORE", "PROTOCOL", "core"]

PROTOCOL: Final = 1
"""Rises when a shim of the old number could misread an answer, or a daemon of the old number a request."""

ENV_FILE: Final = "CLAUDE_ENV_FILE"
SESSION: Final = "STATED_SESSION"


class NoParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class Targets(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    targets: Annotated[
        list[str],
        msgspec.Meta(
            description="Files, folders or domains to look at; left out: every known root.",
            extra={"positional": True, "metavar": "PATH|DOMAIN"},
        ),
    ] = []


class OneRoot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    root: Annotated[str, msgspec.Meta(description="The folder, as `roots list` shows it.", extra={"positional": True})]


class HelpWords(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    words: Annotated[
        list[str],
        msgspec.Meta(description="A command, or a part of one.", extra={"positional": True, "metavar": "CMD"}),
    ] = []


class RpcWords(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    method: Annotated[str, msgspec.Meta(description="The method's name.", extra={"positional": True})]
    params: Annotated[
        list[str],
        msgspec.Meta(
            description="Its params by name: V is JSON where it parses, else a string.",
            extra={"positional": True, "metavar": "K=V"},
        ),
    ] = []
    data: Annotated[dict[str, Any] | None, msgspec.Meta(description="All params as one JSON object.")] = None


class LogParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[
        str | None,
        msgspec.Meta(
            description="A document or a folder; left out: everything.", extra={"positional": True, "metavar": "PATH"}
        ),
    ] = None
    since: Annotated[
        str | None,
        msgspec.Meta(description="Only what is younger: 90m, 24h, 7d, or a date.", extra={"metavar": "D"}),
    ] = None
    limit: Annotated[int, msgspec.Meta(description="The newest so many.", ge=1, le=10_000)] = 50
    origin: Annotated[
        Literal["outside", "call"] | None,
        msgspec.Meta(description="Only edits by others, or only what calls wrote."),
    ] = None


class OneRevision(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    document: Annotated[
        str,
        msgspec.Meta(
            description="A document and one of its revisions, as `log` shows them.",
            extra={"positional": True, "metavar": "PATH@REV"},
        ),
    ]


class TwoRevisions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    document: Annotated[
        str,
        msgspec.Meta(
            description="A document, a revision, and a second one; without it, what is on the disk now.",
            extra={"positional": True, "metavar": "PATH@REV[..REV]"},
        ),
    ]


class OneDocument(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="A document.", extra={"positional": True})]


class UndoParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[
        str,
        msgspec.Meta(description="The call's id, as `log` shows it.", extra={"positional": True, "metavar": "CALL"}),
    ]


class PurgeParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="A document.", extra={"positional": True})]
    before: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="Only the revisions before this one; left out: all.", extra={"metavar": "REV"}),
    ] = None


class HookParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: Annotated[
        Literal["claude", "plain"], msgspec.Meta(description="The answer: a hook's JSON object, or the lines alone.")
    ] = "claude"
    input: Annotated[
        str, msgspec.Meta(description="What the hook got on standard input.", extra={"stdin": True, "metavar": "JSON"})
    ] = ""


# Functions ------------------------------------------------------------------------------------------------------------


async def _version(service: Service, params: NoParams, context: Context) -> Outcome:
    return Outcome({"statectl": context.caller.version, "stated": __version__, "protocol": PROTOCOL})


async def _hello(service: Service, params: NoParams, context: Context) -> Outcome:
    limits = {
        "line": config.MAX_LINE,
        "depth": config.MAX_DEPTH,
        "batch": config.MAX_BATCH,
        "queue": config.MAX_QUEUE,
        "connections": config.MAX_CONNECTIONS,
        "document": config.MAX_DOCUMENT,
    }
    return Outcome({"version": __version__, "protocol": PROTOCOL, "limits": limits})


async def _status(service: Service, params: NoParams, context: Context) -> Outcome:
    return Outcome(await service.status())


async def _stop(service: Service, params: NoParams, context: Context) -> Outcome:
    service.request_stop()
    return Outcome({"stopping": True})


async def _doctor(service: Service, params: Targets, context: Context) -> Outcome:
    rows = await service.doctor(params.targets, context.caller)
    return Outcome({"findings": rows}, status=1 if rows else 0)


async def _roots(service: Service, params: NoParams, context: Context) -> Outcome:
    return Outcome({"roots": await service.roots()})


async def _forget(service: Service, params: OneRoot, context: Context) -> Outcome:
    root = params.root
    if not root:
        raise Usage("expected the path of a folder", where="ROOT")
    if not root.startswith("/"):
        if not context.caller.cwd:
            raise Usage("expected an absolute path", where="ROOT")
        root = posixpath.join(context.caller.cwd, root)
    return Outcome(await service.forget(posixpath.normpath(root)))


_REVISION: Final = re.compile(r"(?P<path>.+)@(?P<rev>[0-9]{1,18})(?:\.\.(?P<to>[0-9]{1,18}))?\Z", re.DOTALL)
"""The last "@" followed by digits splits."""


def _split(text: str, second: bool = False) -> tuple[str, int, int | None]:
    found = _REVISION.match(text)
    if found is None or (found["to"] and not second):
        form = "PATH@REV[..REV]" if second else "PATH@REV"
        raise Usage(f"expected {form} with a revision's number", where=form, hint="`statectl log PATH` names them")
    return found["path"], int(found["rev"]), int(found["to"]) if found["to"] else None


async def _history_log(service: Service, params: LogParams, context: Context) -> Outcome:
    return Outcome(await service.log(params.path, params.since, params.limit, params.origin, context.caller))


async def _show(service: Service, params: OneRevision, context: Context) -> Outcome:
    path, rev, _ = _split(params.document)
    return Outcome(await service.show(path, rev, context.caller))


async def _diff(service: Service, params: TwoRevisions, context: Context) -> Outcome:
    path, rev, to = _split(params.document, second=True)
    return Outcome(await service.diff(path, rev, to, context.caller))


async def _blame(service: Service, params: OneDocument, context: Context) -> Outcome:
    return Outcome(await service.blame(params.path, context.caller))


async def _restore(service: Service, call: Call) -> Answer:
    path, rev, _ = _split(cast(OneRevision, call.params).document)
    return await service.restore(path, rev, call)


async def _undo(service: Service, call: Call) -> Answer:
    return await service.undo(cast(UndoParams, call.params).id, call)


async def _purge(service: Service, params: PurgeParams, context: Context) -> Outcome:
    return Outcome(await service.purge(params.path, params.before, context.caller))


def _show_text(result: Any) -> str:
    if result["text"] is None and result["exists"]:
        raise Refused(
            f"revision {result['rev']} is no UTF-8 text (byte {result['bad_byte']})",
            where=result["path"],
            hint="`statectl --json show` gives it as base64",
        )
    return result["text"] or ""


def _diff_text(result: Any) -> str:
    return str(result["diff"])


def _show_human(result: Any, width: int) -> str:
    return _show_text(result) or ("the document is empty" if result["exists"] else "the document was absent") + "\n"


def _diff_human(result: Any, width: int) -> str:
    return _diff_text(result) or "no difference\n"


def _log_text(result: Any, width: int) -> str:
    """A line a revision, or, where that has no room, a line and the call below it: an id or a path is never cut."""
    rows = result["revisions"]
    if not rows:
        return "nothing is recorded\n"
    roots = {row["root"] for row in rows}
    shown = [_log_row(row, len(roots) == 1) for row in rows]
    lines = [f"in {next(iter(roots))}"] if len(roots) == 1 else []
    head = ("rev", "at", "change", "path", "by")
    wide = table.grid(head, shown, 1 << 16)
    narrow = table.grid(head[:-1], [row[:-1] for row in shown], 1 << 16)
    if max(map(len, wide)) <= width:
        lines += wide
    elif max(map(len, narrow)) <= width:
        lines.append(narrow[0])
        for line, row in zip(narrow[1:], shown, strict=True):
            lines += [line, *(f"      {part}" for part in table.wrap(row[-1], width - 6))]
    else:
        lines += table.grid(head, shown, width)
    if result["more"]:
        lines.append("(older ones: --limit N)")
    return "\n".join(lines) + "\n"


def _log_row(row: Any, one_root: bool) -> tuple[str, str, str, str, str]:
    by = f"{row['method']}, call {row['call']}" if row["origin"] == "call" else "by hand"
    counts = "" if row["added"] is None else f" +{row['added']} -{row['removed']}"
    gone = "" if row["kept"] or row["rev"] is None else " (content not kept)"
    place = row["path"] if one_root else posixpath.join(row["root"], row["path"])
    return _number(row["rev"]), row["at"] or "-", f"{row['what']}{counts}", place, by + gone


def _number(rev: int | None) -> str:
    return "(new)" if rev is None else str(rev)


def _blame_text(result: Any, width: int) -> str:
    """The lines as they are, each run of them under the change that made it."""
    lines: list[str] = []
    last = ""
    for row in result["lines"]:
        at = f", {row['at']}" if row["at"] else ""
        if row["before"] is not None:
            by = f"revision {row['before']} or before: who changed it is no longer known"
        elif row["origin"] == "call":
            by = f"revision {row['rev']}{at}, {row['method']}, call {row['call']}"
        else:
            by = f"revision {_number(row['rev'])}{at}, by hand"
        if by != last:
            lines += table.wrap(by, width)
            last = by
        lines.append(f"{row['line']:>6}  {row['text']}")
    return "\n".join(lines or ["the document is empty" if result["exists"] else "the document is absent"]) + "\n"


def _roots_text(result: Any, width: int) -> str:
    return "\n".join(table.draw(result["roots"], width) if result["roots"] else ["no roots yet"]) + "\n"


def _stop_text(result: Any, width: int) -> str:
    return "the daemon has stopped\n" if result["stopping"] else "no daemon is running\n"


def _undo_text(result: Any, width: int) -> str:
    """What `undo` brought back, a document a line."""
    lines = [f"undone: call {result['undone']}"]
    for row in result["documents"]:
        to = "absent, as before" if row["to"] is None else f"as in revision {row['to']}"
        lines += table.wrap(f"{posixpath.join(row['root'], row['path'])}: {to}", width)
    if result.get("rev") is not None:
        lines.append(f"rev: {result['rev']}")
    return "\n".join(lines) + "\n"


async def _session_start(service: Service, params: HookParams, context: Context) -> Outcome:
    session = _session(params.input)
    try:
        announced = await service.announce(context.caller, session)
    except StatedError:
        # A hook never disturbs a session: it then says nothing, and the commands themselves will tell.
        announced = {"lines": []}
    lines = [str(line) for line in announced.get("lines", ())]
    session = str(announced.get("session") or session)
    env = context.caller.env
    hand: tuple[tuple[str, str], ...] = ()
    if session and env.get(ENV_FILE) and env.get(SESSION) != session:
        hand = ((ENV_FILE, f"export {SESSION}={shlex.quote(session)}\n"),)
    if params.format == "plain":
        return Outcome({"lines": lines, "session": session}, hand=hand)
    if not lines:
        return Outcome({}, hand=hand)
    told = {"hookEventName": "SessionStart", "additionalContext": "\n".join(lines)}
    return Outcome({"hookSpecificOutput": told}, hand=hand)


def _session(text: str) -> str:
    """The session's id in a hook's input, or nothing. It ends up in a shell's file, so only a plain word is taken."""
    parsed = json_text.parse(text.encode("utf-8", "replace")) if text.strip() else None
    value = parsed.value if parsed is not None and parsed.problem is None else None
    session = value.get("session_id") if isinstance(value, dict) else None
    return session if isinstance(session, str) and session.isprintable() and len(session) <= 256 else ""


def _session_text(result: Any) -> str:
    if not result:
        return ""
    if "lines" in result:
        return "".join(f"{line}\n" for line in result["lines"])
    line: bytes = json_text.dumps(result)
    return line.decode() + "\n"


def _version_text(result: Any, width: int) -> str:
    shim = result["statectl"] or "unknown"
    return f"statectl {shim}\nstated {result['stated']} (protocol {result['protocol']})\n"


def _doctor_text(result: Any, width: int) -> str:
    """Whole sentences, whatever the width: a cut hint helps nobody."""
    lines: list[str] = []
    for row in result["findings"]:
        place = posixpath.join(row.get("root") or "", row.get("path") or "").rstrip("/")
        if row.get("line"):
            place += f":{row['line']}"
        lines.append(f"{place}: {row.get('problem', '')}")
        if row.get("hint"):
            lines.append(f"  {row['hint']}")
    return "\n".join(lines or ["nothing to report"]) + "\n"


def _nowhere(caller: Caller, announced: str | None) -> Location:
    raise Refused("the core has no state of its own")


# The table ------------------------------------------------------------------------------------------------------------


def core(domains: Sequence[Domain] = (), discover: Callable[[], dict[str, Any]] | None = None) -> Domain:
    """The core's table over these domains. `discover` gives the OpenRPC document of everything."""
    by_name = {domain.name: domain for domain in domains if domain.name}
    there = f"there are: {', '.join(by_name) or 'none'}"
    named = msgspec.Meta(description=f"A domain's name; {there}.", extra={"positional": True, "hint": there})
    one_domain = msgspec.defstruct(
        "OneDomain", [("domain", Annotated[str, named])], kw_only=True, forbid_unknown_fields=True
    )

    async def where(service: Service, params: Any, context: Context) -> Outcome:
        domain = by_name.get(params.domain)
        if domain is None:
            raise Usage(f"no domain {shown(params.domain)}", where="where", hint=there)
        return Outcome(await service.where(domain, context.caller))

    async def describe(service: Service, params: NoParams, context: Context) -> Outcome:
        return Outcome(discover() if discover is not None else {})

    return Domain(
        name="",
        title="stated",
        summary="The daemon itself, and what it knows about all state.",
        locate=_nowhere,
        operations=(
            Operation(
                name="version",
                kind=Kind.READER,
                summary="Versions of this program, of the daemon and of their protocol.",
                params=NoParams,
                serve=_version,
                method="daemon.version",
                human=_version_text,
                examples=("version",),
            ),
            Operation(
                name="status",
                kind=Kind.READER,
                summary="What the daemon is doing: queue, roots, history, watches. Exits 3 when none runs.",
                params=NoParams,
                serve=_status,
                method="daemon.status",
                examples=("status", "--json status"),
            ),
            Operation(
                name="stop",
                kind=Kind.WRITER,
                summary="Finish what was accepted, checkpoint, exit. Exits 0 also when no daemon runs.",
                params=NoParams,
                serve=_stop,
                method="daemon.stop",
                human=_stop_text,
                examples=("stop",),
            ),
            Operation(
                name="doctor",
                kind=Kind.READER,
                summary="What is wrong on the disk: file, line, what to do. Exits 1 when there is anything.",
                params=Targets,
                serve=_doctor,
                method="daemon.doctor",
                human=_doctor_text,
                examples=("doctor", "doctor ~/notes/state"),
            ),
            Operation(
                name="where",
                kind=Kind.READER,
                summary="Where a domain's state is for this caller, and what said so. Touches nothing.",
                params=one_domain,
                serve=where,
                method="daemon.where",
                details="`origin` is env (a variable), announced (to this session), default or argument.",
                examples=tuple(f"where {name}" for name in list(by_name)[:1]),
            ),
            Operation(
                name="roots list",
                kind=Kind.READER,
                summary="The folders the daemon knows.",
                params=NoParams,
                serve=_roots,
                method="daemon.roots.list",
                human=_roots_text,
                examples=("roots list",),
            ),
            Operation(
                name="roots forget",
                kind=Kind.MEMORY,
                summary="Stop remembering a folder: its revisions, findings and watch. Its files stay.",
                params=OneRoot,
                serve=_forget,
                method="daemon.roots.forget",
                examples=("roots forget /tmp/trial",),
            ),
            Operation(
                name="log",
                kind=Kind.READER,
                summary="What changed, when, by which call or by hand; the newest first.",
                params=LogParams,
                serve=_history_log,
                method="daemon.log",
                human=_log_text,
                details="`added` and `removed` count lines. A row without `rev` is an edit that is on the disk and not "
                "recorded yet. `kept` tells whether the content can still be shown.",
                examples=("log", "log ~/notes/state --since 7d --origin outside"),
            ),
            Operation(
                name="show",
                kind=Kind.READER,
                summary="A document as it was in one revision.",
                params=OneRevision,
                serve=_show,
                method="daemon.show",
                text=_show_text,
                human=_show_human,
                details="Prints nothing for a revision in which the document was absent. --json gives rev, size, hash "
                "and text, or base64 for what is no UTF-8.",
                examples=("show ~/notes/state/profile.json@1042",),
            ),
            Operation(
                name="diff",
                kind=Kind.READER,
                summary="What changed between two revisions of a document, or since one.",
                params=TwoRevisions,
                serve=_diff,
                method="daemon.diff",
                text=_diff_text,
                human=_diff_human,
                examples=("diff ~/notes/state/profile.json@1042", "diff ~/notes/state/profile.json@1042..1050"),
            ),
            Operation(
                name="blame",
                kind=Kind.READER,
                summary="Which call, or whose edit, last changed each line of a document.",
                params=OneDocument,
                serve=_blame,
                method="daemon.blame",
                human=_blame_text,
                details="A line without `rev` was edited by hand and is not recorded yet, or is older than the history "
                "that is kept: then `before` is the oldest revision that has it.",
                examples=("blame ~/notes/state/profile.json",),
            ),
            Operation(
                name="restore",
                kind=Kind.WRITER,
                summary="Make a document what it was in one revision.",
                params=OneRevision,
                queue=_restore,
                method="daemon.restore",
                details="It is a call like any other, with a revision of its own: nothing of the history is lost, and "
                "it can be undone. What does not parse is not brought back. A revision in which the document "
                "was absent deletes it.",
                examples=("restore ~/notes/state/profile.json@1042",),
            ),
            Operation(
                name="undo",
                kind=Kind.WRITER,
                summary="Take back all that one call changed in documents.",
                params=UndoParams,
                queue=_undo,
                method="daemon.undo",
                human=_undo_text,
                details="Refused when any of these documents was changed since, by a call or by hand. What a call only "
                "had remembered (open runs, sessions) and folders are not taken back.",
                examples=("undo 3f8a9c2d",),
            ),
            Operation(
                name="purge",
                kind=Kind.WRITER,
                summary="Drop what the history holds of a document's content. The file itself stays.",
                params=PurgeParams,
                serve=_purge,
                method="daemon.purge",
                details="Who changed it when stays known. The answers of calls stay known under their ids for a week; "
                "`copies` names conflict copies that still hold content.",
                examples=("purge ~/notes/state/profile.json", "purge ~/notes/state/profile.json --before 1042"),
            ),
            Operation(
                name="rpc",
                kind=Kind.READER,
                summary="Call any method by its name.",
                params=RpcWords,
                details="`rpc rpc.discover` lists the methods with the schema of their params.",
                examples=("rpc daemon.status", "rpc daemon.doctor targets='[\"/srv/notes\"]'"),
            ),
            Operation(
                name="help",
                kind=Kind.READER,
                summary="Help for a command; so does --help after it.",
                params=HelpWords,
                examples=("help", "help roots"),
            ),
            Operation(
                name="hook session-start",
                kind=Kind.MEMORY,
                summary="For a SessionStart hook: says where the state is and how fresh. Always exits 0.",
                params=HookParams,
                serve=_session_start,
                method="hook.session_start",
                text=_session_text,
                details="Reads the hook's JSON on standard input when there is some, and hands the session's id on "
                f"through the file that {ENV_FILE} names.",
                examples=("hook session-start --format plain",),
            ),
            Operation(
                name="",
                kind=Kind.READER,
                summary="Version, protocol and limits.",
                params=NoParams,
                serve=_hello,
                method="rpc.hello",
            ),
            Operation(
                name="",
                kind=Kind.READER,
                summary="This document.",
                params=NoParams,
                serve=describe,
                method="rpc.discover",
            ),
        ),
        groups={
            "roots": "the folders the daemon knows, and how to make it forget one",
            "hook": "what agents' hooks call; they never fail and never wait for long",
        },
    )


CORE: Final = core()
"""The table as it stands without a domain, for reading; `cli.Commands` makes its own over the domains it is given."""
