"""A state directory in memory: the domain's operations without a disk, a clock or a daemon."""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stated.documents import json_lines, json_text
from stated.documents.json_lines import JsonLines
from stated.documents.json_text import JsonText
from stated.domain import (
    Append,
    At,
    Caller,
    Change,
    Context,
    EditLine,
    Kind,
    Outcome,
    Remember,
    Revision,
    TextDocument,
    Write,
)
from stated.domains.seal import DOMAIN

OPERATIONS = {operation.name: operation for operation in DOMAIN.operations}
HOME = "/home/u"
ROOT = f"{HOME}/.seal-copilot"


@dataclass
class Memory:
    """Files by their absolute path, and the calls on them. It is its own `Docs`, and never asks to come again."""

    files: dict[str, bytes] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    now: datetime = datetime(2026, 9, 18, 10, 30, 5, tzinfo=UTC)
    root: str = ROOT
    writes: int = 0
    calls: int = 0
    pid: int = 4711
    if_rev: Revision | None = None
    remembered: dict[tuple[str, str], Any] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)

    # What a test does

    def put(self, path: str, value: Any) -> None:
        """A file below the root: bytes as they are, a text, lines of a list, or a JSON value."""
        if isinstance(value, str):
            value = value.encode()
        elif not isinstance(value, bytes):
            value = json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n"
        self.files[f"{self.root}/{path}"] = value

    def get(self, path: str) -> Any:
        return json.loads(self.files[f"{self.root}/{path}"])

    def raw(self, path: str) -> bytes:
        return self.files[f"{self.root}/{path}"]

    def records(self, path: str) -> list[Any]:
        return [json.loads(line) for line in self.raw(path).splitlines()]

    def later(self, **units: float) -> None:
        self.now += timedelta(**units)

    @property
    def caller(self) -> Caller:
        return Caller(HOME, "/work", self.env, pid=self.pid)

    @property
    def context(self) -> Context:
        return Context(self.now, UTC, self.caller, f"call-{self.calls}", self.root, self.if_rev)

    def outcome(self, name: str, **params: Any) -> Outcome:
        operation = OPERATIONS[name]
        assert operation.run is not None
        return operation.run(self, operation.params(**params), self.context)

    def call(self, name: str, **params: Any) -> Any:
        """Decide, write, and give back what the caller is told. Every answer can be sent as JSON."""
        self.calls += 1
        outcome = self.outcome(name, **params)
        json_text.dumps(outcome.result)
        kind = OPERATIONS[name].kind
        for change in outcome.changes:
            assert kind is not Kind.READER
            assert isinstance(change, Remember) or kind is Kind.WRITER
            self.apply(change)
        if any(not isinstance(change, Remember) for change in outcome.changes):
            assert "rev" not in outcome.result
            return {**outcome.result, "rev": self.writes}
        return outcome.result

    def apply(self, change: Change) -> None:
        """As the core does it, the conflicts included."""
        match change:
            case Write(at, content):
                self.files[posixpath.join(*at)] = content
            case Append(at, line):
                before = self.files.get(posixpath.join(*at), b"")
                self.files[posixpath.join(*at)] = (
                    before + (b"\n" if before and not before.endswith(b"\n") else b"") + line
                )
            case EditLine(at, number, old, new):
                edited = json_lines.replace_line(self.files[posixpath.join(*at)], number, old, new)
                assert edited is not None
                self.files[posixpath.join(*at)] = edited
            case Remember(kind, key, value):
                assert kind in {memory.name for memory in DOMAIN.memories}
                assert self.root in key
                # What is remembered goes through JSON, as in the journal.
                if value is None:
                    self.remembered.pop((kind, key), None)
                else:
                    self.remembered[kind, key] = json_text.parse(json_text.dumps(value)).value
                return
            case _:
                raise AssertionError(change)
        self.writes += 1

    def upkeep(self) -> Any:
        """What the core runs by itself every few minutes."""
        assert DOMAIN.upkeep is not None
        assert DOMAIN.upkeep.run is not None
        outcome = DOMAIN.upkeep.run(self, DOMAIN.upkeep.params(), self.context)
        json_text.dumps(outcome.result)
        for change in outcome.changes:
            self.apply(change)
        return outcome.result

    def announce(self) -> tuple[str, ...]:
        assert DOMAIN.announce is not None
        announcement = DOMAIN.announce(self, self.context, DOMAIN.locate(self.caller, None))
        assert announcement.changes == ()
        return announcement.lines

    # Docs

    def _bytes(self, at: At) -> bytes | None:
        path = posixpath.join(*at)
        self.read.append(path)
        return self.files.get(path)

    def json(self, at: At) -> JsonText:
        return json_text.parse(self._bytes(at))

    def lines(self, at: At) -> JsonLines:
        return json_lines.parse(self._bytes(at))

    def text(self, at: At) -> TextDocument:
        raw = self._bytes(at)
        return TextDocument(raw is not None, raw or b"")

    def exists(self, at: At) -> bool:
        path = posixpath.join(*at).rstrip("/")
        return path in self.files or any(name.startswith(path + "/") for name in self.files)

    def folder(self, at: At) -> tuple[str, ...]:
        path = posixpath.join(*at).rstrip("/") + "/"
        names = set()
        for name in self.files:
            if name.startswith(path):
                first, slash, _ = name[len(path) :].partition("/")
                names.add(first + slash)
        return tuple(sorted(names))

    def rev(self, at: At) -> Revision | None:
        return self.writes if posixpath.join(*at) in self.files else None

    def memory(self, kind: str, key: str) -> Any:
        return self.remembered.get((kind, key))


@pytest.fixture
def state() -> Memory:
    """An empty state directory; SEALMETRICS_SITE_ID is not set. The day is 2026-09-18."""
    return Memory()
