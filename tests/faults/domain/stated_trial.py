"""A third-party domain for the fault tests: every kind of change, in forms that tell afterwards what was done how
often.

Each call brings a *tag*. A document holds the tags of the calls that changed it, in their order, and how many there
were, so a call that is missing, double or half there can be seen in the files alone.

The one operation that is not pure is `arm`: it installs fail points in the running daemon, so that their counting
starts at a known moment.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from stated import faults
from stated.documents import json_lines, json_text
from stated.domain import (
    Append,
    At,
    Caller,
    Change,
    Context,
    Create,
    Delete,
    Docs,
    Domain,
    EditLine,
    Kind,
    Location,
    MakeFolder,
    Move,
    Operation,
    Outcome,
    Refused,
    Remember,
    Write,
)
from stated.domain import MemoryKind as MemoryKind

SECOND = "-second"
"""What the name of the second root ends in."""


class Tag(msgspec.Struct, kw_only=True):
    tag: str


class Plan(msgspec.Struct, kw_only=True):
    plan: str = ""


class Slot(msgspec.Struct, kw_only=True):
    """`slot` chooses a root of its own beside the usual one."""

    tag: str
    slot: str = ""


def locate(caller: Caller, announced: str | None) -> Location:
    return Location(f"{caller.home}/trial", "default")


def _counted(docs: Docs, at: At, tag: str) -> Change:
    """The document with this tag behind the others."""
    doc = docs.json(at)
    if not doc.exists:
        return Write(at, json_text.encode({"n": 1, "tags": [tag]}))
    if not doc.ok:
        raise Refused("not JSON", where=at.path)
    value = dict(doc.value)
    value["n"] = value.get("n", 0) + 1
    value["tags"] = [*value.get("tags", []), tag]
    return Write(at, json_text.edit(doc, value))


def _line(context: Context, tag: str) -> Append:
    return Append(At(context.root, "log.jsonl"), json_lines.encode_line({"tag": tag, "state": "open"}))


def one(docs: Docs, params: Tag, context: Context) -> Outcome:
    return Outcome({}, (_counted(docs, At(context.root, "one.json"), params.tag),))


def two(docs: Docs, params: Tag, context: Context) -> Outcome:
    places = (At(context.root, "a.json"), At(context.root, "sub/b.json"))
    return Outcome({}, tuple(_counted(docs, at, params.tag) for at in places))


def create(docs: Docs, params: Tag, context: Context) -> Outcome:
    return Outcome({}, (Create(At(context.root, f"made/{params.tag}.json"), json_text.encode({"tag": params.tag})),))


def log(docs: Docs, params: Tag, context: Context) -> Outcome:
    return Outcome({}, (_line(context, params.tag),))


def mixed(docs: Docs, params: Tag, context: Context) -> Outcome:
    """A line, a new file and a replaced one."""
    new = Create(At(context.root, f"made/{params.tag}.json"), json_text.encode({"tag": params.tag}))
    return Outcome({}, (_counted(docs, At(context.root, "a.json"), params.tag), new, _line(context, params.tag)))


def mark(docs: Docs, params: Tag, context: Context) -> Outcome:
    """Change the state in the oldest open line, and count in a file."""
    at = At(context.root, "marks.jsonl")
    doc = docs.lines(at)
    for number, value in doc.records:
        if value["state"] == "open":
            old = next(line.raw for line in doc.lines if line.number == number)
            new = json_lines.edit_line(doc, number, {**value, "state": params.tag})
            return Outcome({}, (EditLine(at, number, old, new), _counted(docs, At(context.root, "a.json"), params.tag)))
    raise Refused("no open line")


def delete(docs: Docs, params: Tag, context: Context) -> Outcome:
    """Count in a file and delete another."""
    at = At(context.root, "gone.json")
    if not docs.json(at).exists:
        raise Refused("there is nothing to delete")
    return Outcome({}, (_counted(docs, At(context.root, "a.json"), params.tag), Delete(at)))


def folder(docs: Docs, params: Tag, context: Context) -> Outcome:
    files = {"state.json": json_text.encode({"tag": params.tag}), "deep/more.json": b"{}\n"}
    return Outcome(
        {},
        (
            _counted(docs, At(context.root, "a.json"), params.tag),
            MakeFolder(At(context.root, f"folders/{params.tag}"), files),
        ),
    )


def move(docs: Docs, params: Tag, context: Context) -> Outcome:
    source = At(context.root, "from")
    if not docs.exists(source):
        raise Refused("there is nothing to move")
    return Outcome(
        {},
        (
            _counted(docs, At(context.root, "a.json"), params.tag),
            Move(source, At(context.root, f"moved/{params.tag}")),
        ),
    )


def roots(docs: Docs, params: Tag, context: Context) -> Outcome:
    places = (At(context.root, "a.json"), At(context.root + SECOND, "b.json"))
    return Outcome({}, tuple(_counted(docs, at, params.tag) for at in places))


def slot(docs: Docs, params: Slot, context: Context) -> Outcome:
    return Outcome({}, (_counted(docs, At(f"{context.root}-{params.slot}", "a.json"), params.tag),))


def remember(docs: Docs, params: Tag, context: Context) -> Outcome:
    """Count in memory and in a file."""
    tags = [*(docs.memory("tags", "all") or []), params.tag]
    return Outcome(
        {"tags": tags}, (_counted(docs, At(context.root, "a.json"), params.tag), Remember("tags", "all", tags))
    )


def counter(docs: Docs, params: Slot, context: Context) -> Outcome:
    """Count in one memory document from several roots."""
    tags = [*(docs.memory("tags", "all") or []), params.tag]
    at = At(f"{context.root}-{params.slot}", "a.json")
    return Outcome({"tags": tags}, (_counted(docs, at, params.tag), Remember("tags", "all", tags)))


def show(docs: Docs, params: Plan, context: Context) -> Outcome:
    """The memory document, and the two counters as one published state shows them."""
    counts = [docs.json(At(context.root, path)) for path in ("a.json", "sub/b.json")]
    seen: list[Any] = [doc.value["n"] if doc.ok else None for doc in counts]
    return Outcome({"tags": docs.memory("tags", "all") or [], "counts": seen})


def arm(docs: Docs, params: Plan, context: Context) -> Outcome:
    faults.install(params.plan)
    return Outcome({"pid": os.getpid()})


def _slot_root(params: Any, location: Location, caller: Caller) -> tuple[str, ...]:
    return (f"{location.root}-{params.slot}",)


def _both_roots(params: Any, location: Location, caller: Caller) -> tuple[str, ...]:
    return (location.root, location.root + SECOND)


def _writer(name: str, run: Any, params: type[msgspec.Struct] = Tag, roots: Any = None) -> Operation:
    return Operation(name=name, kind=Kind.WRITER, summary=f"Try {name}.", params=params, run=run, roots=roots)


DOMAIN = Domain(
    name="trial",
    title="Trial",
    summary="For the fault tests.",
    locate=locate,
    memories=(MemoryKind("tags", "tags", "The tags are counted anew."),),
    operations=(
        _writer("one", one),
        _writer("two", two),
        _writer("create", create),
        _writer("log", log),
        _writer("mixed", mixed),
        _writer("mark", mark),
        _writer("delete", delete),
        _writer("folder", folder),
        _writer("move", move),
        _writer("roots", roots, roots=_both_roots),
        _writer("slot", slot, Slot, _slot_root),
        _writer("remember", remember),
        _writer("counter", counter, Slot, _slot_root),
        Operation(name="show", kind=Kind.READER, summary="What is counted.", params=Plan, run=show),
        Operation(name="arm", kind=Kind.READER, summary="Install fail points.", params=Plan, run=arm),
    ),
)
