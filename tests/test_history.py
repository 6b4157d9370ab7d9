"""The history: every earlier state comes back byte for byte, every line has its author, and it stays within its bound.

The engine runs in this process, on real files, with a domain of plain documents. What it says is compared with a model
that knows nothing of frames: a list of the states that there were, and for each line the revision that wrote its text.
The lines of a document differ from each other and always stand in one order, so that there is one right answer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stated import config, history
from stated.call import Answer, Call
from stated.config import Config
from stated.domain import (
    Append,
    At,
    Caller,
    Change,
    Context,
    Delete,
    Docs,
    DocumentKind,
    Domain,
    EditLine,
    Finding,
    Kind,
    Location,
    Operation,
    Outcome,
    Remember,
    Write,
)
from stated.engine import Engine
from stated.errors import Conflict, Refused, StatedError, Usage
from stated.journal import Notice

# A domain of plain documents ------------------------------------------------------------------------------------------


class Changes(msgspec.Struct, kw_only=True):
    """Each row: what is done, on which document, with which bytes (latin-1), in which line."""

    rows: list[tuple[str, str, str, int]]


def run(docs: Docs, params: Changes, context: Context) -> Outcome:
    changes: list[Change] = []
    for what, path, text, line in params.rows:
        at = At(context.root, path)
        raw = text.encode("latin-1")
        match what:
            case "write":
                changes.append(Write(at, raw))
            case "append":
                changes.append(Append(at, raw))
            case "edit":
                old = docs.lines(at).lines[line].raw
                changes.append(EditLine(at, docs.lines(at).lines[line].number, old, raw))
            case "delete":
                docs.text(at)
                changes.append(Delete(at))
            case "look":
                docs.text(at)
            case "remember":
                changes.append(Remember("thing", path, text))
    return Outcome({}, tuple(changes))


def locate(caller: Caller, announced: str | None) -> Location:
    return Location(os.path.join(caller.home, "state"), "default")


def no_findings(document: Any, at: At) -> list[Finding]:
    return []


TRIAL = Domain(
    name="trial",
    title="Trial",
    summary="For tests.",
    operations=(Operation(name="change", kind=Kind.WRITER, summary="", params=Changes, run=run),),
    locate=locate,
    documents=(
        DocumentKind("json", "*.json", "json", "", no_findings),
        DocumentKind("lines", "*.jsonl", "lines", "", no_findings),
        DocumentKind("notes", "*.md", "text", "", no_findings),
    ),
)


_ENGINES = itertools.count()


@dataclass
class Trial:
    """An engine over one folder, as calls and as a person at the keyboard use it."""

    home: Path
    settings: Config = field(default_factory=lambda: Config(watch="off"))
    calls: int = 0

    def __post_init__(self) -> None:
        self.calls = 100_000 * next(_ENGINES)  # ids that no engine before it has given
        self.root = self.home / "state"
        self.root.mkdir(exist_ok=True)
        self.caller = Caller(home=str(self.home), cwd=str(self.root))

    async def start(self) -> None:
        self.engine = Engine(str(self.home), config=self.settings, domains=[TRIAL])
        await self.engine.start()

    async def change(self, *rows: tuple[str, str, str, int], call: str = "") -> int:
        """The call's revision; 0 when nothing changed."""
        self.calls += 1
        operation = TRIAL.operations[0]
        answer = await self.engine.submit(
            Call(TRIAL, operation, Changes(rows=list(rows)), self.caller, call or f"call-{self.calls}")
        )
        return answer.rev or 0

    def _call(self, call: str, **control: Any) -> Call:
        self.calls += 1
        return Call(TRIAL, TRIAL.operations[0], Changes(rows=[]), self.caller, call or f"call-{self.calls}", **control)

    async def restore(self, path: str, rev: int, call: str = "", **control: Any) -> Answer:
        return await self.engine.restore(path, rev, self._call(call, **control))

    async def undo(self, undone: str, call: str = "", **control: Any) -> Answer:
        return await self.engine.undo(undone, self._call(call, **control))

    async def show(self, path: str, rev: int) -> bytes | None:
        shown = await self.engine.show(path, rev, self.caller)
        if "base64" in shown:
            return base64.b64decode(shown["base64"])
        text = shown["text"]
        return text.encode() if text is not None else None

    async def log(self, path: str | None = None, limit: int = 10_000, **more: Any) -> list[dict[str, Any]]:
        answer = await self.engine.log(path, more.get("since"), limit, more.get("origin"), self.caller)
        rows: list[dict[str, Any]] = answer["revisions"]
        return rows

    async def blame(self, path: str) -> list[tuple[str, Any]]:
        answer = await self.engine.blame(path, self.caller)
        return [(row["text"], row["rev"] if row["before"] is None else f"<{row['before']}") for row in answer["lines"]]

    async def diff(self, path: str, rev: int, to: int | None = None) -> dict[str, Any]:
        return await self.engine.diff(path, rev, to, self.caller)

    def put(self, path: str, raw: bytes) -> None:
        """By hand, as most editors save."""
        new = self.root / f"{path}.new"
        new.write_bytes(raw)
        new.replace(self.root / path)

    def read(self, path: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self.root / path).read_bytes()
        return None

    def held(self) -> int:
        with sqlite3.connect(config.journal_path(str(self.home))) as db:
            return int(db.execute("SELECT coalesce(sum(length(body)), 0) FROM revisions").fetchone()[0])

    async def settled(self) -> None:
        """Until everything is checkpointed and the history is within its bound, or cannot be."""
        for _ in range(3):
            await self.engine._task(lambda: None)
            await until(lambda: not self.engine.writer._dirty() and not self.engine._keeper._busy)


async def until(condition: Callable[[], object], deadline: float = 20.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "did not happen"
        await asyncio.sleep(0.005)  # the poll of this wait


@contextlib.asynccontextmanager
async def trial(home: Path, **settings: Any) -> AsyncIterator[Trial]:
    made = Trial(home, Config(watch="off", **settings))
    await made.start()
    try:
        yield made
    finally:
        await made.engine.close()


def play(body: Callable[[Trial], Awaitable[None]], home: Path, **settings: Any) -> None:
    async def main() -> None:
        async with trial(home, **settings) as made:
            await body(made)

    asyncio.run(main())


# Single points --------------------------------------------------------------------------------------------------------


def test_log_tells_what_happened_the_newest_first(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        first = await at.change(("write", "a.md", "one\ntwo\n", 0), ("write", "b.md", "x\n", 0), call="c1")
        second = await at.change(("write", "a.md", "one\n2\nthree\n", 0), call="c2")
        third = await at.change(("append", "log.jsonl", '{"n":1}\n', 0), call="c3")
        fourth = await at.change(("append", "log.jsonl", '{"n":2}\n{"n":3}\n', 0), call="c4")
        at.put("a.md", b"one\n")
        await at.change(("look", "a.md", "", 0))
        await at.change(("delete", "a.md", "", 0), call="c6")
        rows = await at.log()

        assert [
            (row["rev"], row["path"], row["origin"], row["call"], row["what"], row["added"], row["removed"])
            for row in rows
        ] == [
            (rows[0]["rev"], "a.md", "call", "c6", "deleted", 0, 1),
            (rows[1]["rev"], "a.md", "outside", None, "changed", 0, 2),
            (fourth, "log.jsonl", "call", "c4", "changed", 2, 0),
            (third, "log.jsonl", "call", "c3", "created", 1, 0),
            (second, "a.md", "call", "c2", "changed", 2, 1),
            (first, "a.md", "call", "c1", "created", 2, 0),
            (first, "b.md", "call", "c1", "created", 1, 0),
        ]
        assert {row["method"] for row in rows} == {"trial.change", None}
        assert all(row["root"] == str(at.root) and row["at"].endswith("Z") for row in rows)
        assert [row["rev"] for row in await at.log(limit=2)] == [row["rev"] for row in rows[:2]]
        assert [row["origin"] for row in await at.log(origin="outside")] == ["outside"]
        assert await at.log(since="2100-01-01") == []
        assert len(await at.log(since="1h")) == 7
        assert {row["path"] for row in await at.log("log.jsonl")} == {"log.jsonl"}
        assert len(await at.log(".")) == 7

    play(body, tmp_path)


def test_an_edit_that_nobody_recorded_yet_is_told_all_the_same(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        rev = await at.change(("write", "a.md", "one\n", 0))
        await at.settled()
        at.put("a.md", b"one\ntwo\n")
        head = (await at.log("a.md"))[0]
        assert (head["rev"], head["origin"], head["added"], head["removed"]) == (None, "outside", 1, 0)
        assert (await at.diff("a.md", rev))["diff"] == (f"--- a.md@{rev}\n+++ a.md@now\n@@ -1 +1,2 @@\n one\n+two\n")
        await until(lambda: at.engine.snapshot.known[At(str(at.root), "a.md")].rev > rev)
        assert [row["rev"] is None for row in await at.log("a.md")] == [False, False]
        (at.root / "new.md").write_bytes(b"new\n")
        assert await at.blame("new.md") == [("new", None)]
        assert [(row["rev"], row["what"], row["added"]) for row in await at.log("new.md")] == [(None, "found", 1)]

    play(body, tmp_path)


def test_paths_are_relative_absolute_linked_or_of_files_that_are_gone(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "real.md").write_bytes(b"linked\n")
        (at.root / "linked.md").symlink_to(tmp_path / "elsewhere" / "real.md")
        (tmp_path / "short").symlink_to(at.root)
        rev = await at.change(("write", "a.md", "one\n", 0))
        await at.change(("append", "linked.md", "more\n", 0))
        await at.change(("delete", "a.md", "", 0))
        for path in ("a.md", "./x/../a.md", str(at.root / "a.md"), str(tmp_path / "short" / "a.md")):
            assert await at.show(path, rev) == b"one\n"
        for path in ("linked.md", str(tmp_path / "elsewhere" / "real.md")):
            assert len(await at.log(path)) == 2
        for path in ("b.md", "/nowhere/a.md", "a.md/b"):
            with pytest.raises(Refused):
                await at.log(path)
        with pytest.raises(Refused, match="folder"):
            await at.show(str(at.root), rev)
        at.caller = Caller(home=str(at.home), cwd=None)
        with pytest.raises(Usage):
            await at.log("a.md")

    play(body, tmp_path)


def test_what_is_no_utf8_comes_back_to_the_byte(tmp_path: Path) -> None:
    raw = bytes(range(256)) * 3

    async def body(at: Trial) -> None:
        first = await at.change(("write", "a.md", raw.decode("latin-1"), 0))
        second = await at.change(("write", "a.md", "text\n", 0))
        shown = await at.engine.show("a.md", first, at.caller)
        assert (shown["text"], shown["bad_byte"]) == (None, 128)
        assert await at.show("a.md", first) == raw
        assert "no text" in (await at.diff("a.md", first, second))["diff"]
        await at.restore("a.md", first)
        assert at.read("a.md") == raw

    play(body, tmp_path)


def test_diff_agrees_with_the_tool_of_that_name(tmp_path: Path) -> None:
    import subprocess

    chance = random.Random(3)
    old = [f"line {chance.randrange(40)}" for _ in range(200)]
    new = [line for line in old if chance.random() > 0.1]
    for _ in range(10):
        new.insert(chance.randrange(len(new)), "new")
    for a, b in ((old, new), (old, []), ([], new), (old, old), (["x"], ["y"])):
        for ending in ("\n", ""):
            before, after = ("\n".join(lines).encode() + (ending.encode() if lines else b"") for lines in (a, b))
            text = history.unified(before, after, "old", "new")
            (tmp_path / "old").write_bytes(before)
            (tmp_path / "patch").write_text(text)
            if text:
                subprocess.run(["patch", "-s", "old", "patch"], cwd=tmp_path, check=True)
            assert (tmp_path / "old").read_bytes() == after
    assert history.unified(b"a\nb\n", b"a\nc", "x", "y") == (
        "--- x\n+++ y\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"
    )


@given(st.lists(st.sampled_from("abc\n"), max_size=40), st.lists(st.sampled_from("abc\n"), max_size=40))
def test_changed_lines_make_one_of_the_other(old: list[str], new: list[str]) -> None:
    before, after = "".join(old).encode(), "".join(new).encode()
    lines, wanted = history.lines_of(before), history.lines_of(after)
    for block in reversed(history.changed_lines(before, after)):
        lines[block.old_from : block.old_to] = wanted[block.new_from : block.new_to]
    assert lines == wanted


def test_two_large_documents_of_equal_lines_are_compared_in_time() -> None:
    before = b"x\n" * 300_000 + b"a\n" + b"x\n" * 300_000
    began = time.monotonic()
    assert len(history.changed_lines(before, before.replace(b"a", b"b").replace(b"x\n", b"y\n", 1))) == 1
    assert time.monotonic() - began < 5


def test_a_document_that_is_being_written_is_never_taken_for_edited_by_hand(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        (at.root / "log.jsonl").write_bytes(b'{"n":0}\n')

        async def write() -> None:
            for number in range(60):
                await at.change(
                    ("write", "a.md", noise(number, 200), 0), ("append", "log.jsonl", f'{{"n":{number}}}\n', 0)
                )

        async def read(path: str) -> None:
            while not writing.done():
                rows = await at.log(path)
                assert {row["origin"] for row in rows if row["what"] != "found"} <= {"call"}
                assert all(row["rev"] for row in rows)
                assert None not in {rev for _, rev in await at.blame(path)}
                if rows:
                    await at.show(path, rows[-1]["rev"])

        await at.change(("write", "a.md", "first\n", 0), ("append", "log.jsonl", "{}\n", 0))
        writing = asyncio.ensure_future(write())
        await asyncio.gather(writing, read("a.md"), read("log.jsonl"))

    play(body, tmp_path)


# Bringing back --------------------------------------------------------------------------------------------------------


def test_restore_is_a_call_like_any_other(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        first = await at.change(("write", "a.json", '{"a": 1}\n', 0))
        second = await at.change(("write", "a.json", '{"a": 2}\n', 0))
        dry = await at.restore("a.json", first, dry_run=True)
        assert (dry.result["would_change"], dry.rev) == (["a.json"], None)
        assert at.read("a.json") == b'{"a": 2}\n'
        with pytest.raises(Conflict):
            await at.restore("a.json", first, if_rev=first)
        answer = await at.restore("a.json", first, "again", if_rev=second)
        assert at.read("a.json") == b'{"a": 1}\n'
        assert (answer.result["rev"], answer.result["restored"]) == (answer.rev, first)
        assert await at.restore("a.json", first, "again", if_rev=second) == answer  # a repeat gets the first answer
        same = await at.restore("a.json", first)
        assert (same.rev, same.result["changed"], same.result["rev"]) == (None, False, answer.rev)
        row = (await at.log("a.json"))[0]
        assert (row["method"], row["call"]) == ("daemon.restore", "again")
        with pytest.raises(Refused, match="no revision"):
            await at.restore("a.json", 999_999)
        await at.undo("again")
        assert at.read("a.json") == b'{"a": 2}\n'

    play(body, tmp_path)


def test_a_broken_file_is_replaced_by_a_good_revision_and_kept_in_the_history(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        good = await at.change(("write", "a.json", '{"a": 1}\n', 0))
        at.put("a.json", b'{"a": ')
        findings = await at.engine.doctor([str(at.root)], at.caller)
        assert f"a.json@{good}`" in findings[0]["hint"]
        answer = await at.restore("a.json", good)
        assert at.read("a.json") == b'{"a": 1}\n'
        broken = (await at.log("a.json"))[1]
        assert (broken["origin"], await at.show("a.json", broken["rev"])) == ("outside", b'{"a": ')
        with pytest.raises(Refused, match="not JSON"):
            await at.restore("a.json", broken["rev"])
        with pytest.raises(Refused, match="not JSON"):
            await at.undo((await at.log("a.json"))[0]["call"])
        assert (await at.log("a.json"))[0]["rev"] == answer.rev

    play(body, tmp_path)


def test_a_bad_line_may_stay_where_it_is_but_is_not_brought_back(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        (at.root / "log.jsonl").write_bytes(b'{"n":1}\nbad\n')
        await at.change(("look", "log.jsonl", "", 0))
        first = (await at.log("log.jsonl"))[0]["rev"]
        await at.change(("append", "log.jsonl", '{"n":2}\n', 0))
        await at.restore("log.jsonl", first)
        assert at.read("log.jsonl") == b'{"n":1}\nbad\n'
        at.put("log.jsonl", b'{"n":1}\n')
        with pytest.raises(Refused, match="no record"):
            await at.restore("log.jsonl", first)

    play(body, tmp_path)


def test_restoring_a_revision_without_the_document_deletes_it(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        first = await at.change(("write", "a.md", "one\n", 0))
        gone = await at.change(("delete", "a.md", "", 0))
        assert await at.show("a.md", gone) is None
        await at.restore("a.md", first)
        assert at.read("a.md") == b"one\n"
        await at.restore("a.md", gone)
        assert at.read("a.md") is None

    play(body, tmp_path)


def test_undo_takes_back_all_documents_of_a_call_or_none(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        await at.change(("write", "a.md", "old\n", 0), ("append", "log.jsonl", '{"n":1}\n', 0))
        await at.change(
            ("delete", "a.md", "", 0), ("append", "log.jsonl", '{"n":2}\n', 0), ("write", "b.md", "b\n", 0), call="c"
        )
        await at.undo("c", "back")
        assert (at.read("a.md"), at.read("log.jsonl"), at.read("b.md")) == (b"old\n", b'{"n":1}\n', None)
        await at.undo("back", "forth")
        assert (at.read("a.md"), at.read("log.jsonl"), at.read("b.md")) == (None, b'{"n":1}\n{"n":2}\n', b"b\n")
        with pytest.raises(
            Refused, match=r"a\.md was changed since by daemon\.undo \(call back, revision \d+\), by daemon"
        ):
            await at.undo("c")
        at.put("b.md", b"by hand\n")
        with pytest.raises(Refused, match=r"b\.md was changed since by hand \(revision \d+\)") as refused:
            await at.undo("forth")
        assert [place["path"] for place in refused.value.data["changed"]] == ["b.md"]
        assert at.read("a.md") is None

    play(body, tmp_path)


def test_undo_of_a_deletion_is_refused_when_somebody_made_the_file_anew(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        await at.change(("write", "a.md", "old\n", 0))
        await at.change(("delete", "a.md", "", 0), call="c")
        at.put("a.md", b"new\n")
        with pytest.raises(Refused, match="changed since by hand"):
            await at.undo("c")
        (at.root / "a.md").unlink()
        await at.change(("look", "a.md", "", 0))
        with pytest.raises(
            Refused, match="changed since by hand"
        ):  # twice: gone again, and yet not as the call left it
            await at.undo("c")

    play(body, tmp_path)


def test_a_call_that_changed_no_document_is_not_undone(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        await at.change(("remember", "x", "y", 0), call="c")
        with pytest.raises(Refused, match="remembered is not undone"):
            await at.undo("c")
        with pytest.raises(Refused, match="no such call"):
            await at.undo("never")

    play(body, tmp_path)


def test_restore_and_undo_see_an_edit_made_in_the_very_moment(tmp_path: Path) -> None:
    """They look again in the queue, whatever was there when they were asked for."""

    async def body(at: Trial) -> None:
        first = await at.change(("write", "a.md", "one\n", 0))
        await at.change(("write", "a.md", "two\n", 0), call="c")
        later = at.change(("write", "a.md", "three\n", 0))
        undo = at.undo("c")
        restore = at.restore("a.md", first)
        answers = await asyncio.gather(later, undo, restore, return_exceptions=True)
        assert isinstance(answers[1], Refused)
        assert at.read("a.md") == b"one\n"
        contents = [await at.show("a.md", row["rev"]) for row in await at.log("a.md")]
        assert contents == [b"one\n", b"three\n", b"two\n", b"one\n"]

    play(body, tmp_path)


# Logs that nobody read ------------------------------------------------------------------------------------------------


def test_a_log_that_was_only_appended_to_is_known_from_the_file(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        (at.root / "log.jsonl").write_bytes(b'{"n":0}\n{"n":1}\n')
        revs = [await at.change(("append", "log.jsonl", f'{{"n":{n}}}\n', 0)) for n in (2, 3, 4)]
        rows = await at.log("log.jsonl")
        assert [(row["what"], row["added"]) for row in rows] == [("changed", 1)] * 3 + [("found", 2)]
        assert await at.show("log.jsonl", rows[3]["rev"]) == b'{"n":0}\n{"n":1}\n'
        assert await at.show("log.jsonl", revs[0]) == b'{"n":0}\n{"n":1}\n{"n":2}\n'
        assert [rev for _, rev in await at.blame("log.jsonl")] == [rows[3]["rev"]] * 2 + revs
        # An edit of a line keeps what was there before it.
        await at.change(("edit", "log.jsonl", '{"n":"one"}', 1), call="edit")
        assert await at.show("log.jsonl", revs[2]) == b"".join(b'{"n":%d}\n' % n for n in range(5))
        assert await at.show("log.jsonl", revs[0]) == b'{"n":0}\n{"n":1}\n{"n":2}\n'
        await at.undo("edit")
        assert at.read("log.jsonl") == b"".join(b'{"n":%d}\n' % n for n in range(5))

    play(body, tmp_path)


def test_a_log_that_nobody_read_and_somebody_edited_is_not_guessed(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        (at.root / "log.jsonl").write_bytes(b'{"n":0}\n{"n":1}\n')
        rev = await at.change(("append", "log.jsonl", '{"n":2}\n', 0))
        await at.settled()
        at.put("log.jsonl", b'{"x":0}\n{"n":1}\n{"n":2}\n')
        last = await at.change(("append", "log.jsonl", '{"n":3}\n', 0))
        with pytest.raises(Refused, match=f"revision {rev} cannot be put together"):
            await at.show("log.jsonl", rev)
        edited = (await at.log("log.jsonl"))[1]["rev"]
        assert await at.blame("log.jsonl") == [
            ('{"x":0}', f"<{edited}"),
            ('{"n":1}', f"<{edited}"),
            ('{"n":2}', f"<{edited}"),
            ('{"n":3}', last),
        ]

    play(body, tmp_path)


def test_undo_of_an_append_to_a_log_that_nobody_read(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        (at.root / "log.jsonl").write_bytes(b'{"n":0}')  # torn: ours begins a new line
        await at.change(("append", "log.jsonl", '{"n":1}\n', 0), call="c")
        assert at.read("log.jsonl") == b'{"n":0}\n{"n":1}\n'
        await at.undo("c")
        assert at.read("log.jsonl") == b'{"n":0}'

    play(body, tmp_path)


def test_ten_thousand_appends_are_blamed_in_time(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        await asyncio.gather(*(at.change(("append", "log.jsonl", f'{{"n":{n}}}\n', 0)) for n in range(10_000)))
        began = time.monotonic()
        owners = [rev for _, rev in await at.blame("log.jsonl")]
        assert len(set(owners)) == 10_000
        assert owners == sorted(owners)
        assert time.monotonic() - began < 10

    play(body, tmp_path)


# Any earlier state ----------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """One document as a list of states. `lines` are `(key, text)`, in the order of their keys."""

    path: str
    states: list[tuple[int, bytes | None]] = field(default_factory=list)
    calls: list[tuple[str, int, bytes | None]] = field(default_factory=list)
    """Calls, their revision, and what was there before."""
    owners: dict[bytes, int] = field(default_factory=dict)
    now: bytes | None = None
    counter: int = 0

    def lines(self) -> list[tuple[float, str]]:
        rows = []
        for line in (self.now or b"").decode().splitlines():
            with contextlib.suppress(ValueError):
                if self.path.endswith(".json"):
                    key, _, text = line.strip().rstrip(",").partition(": ")
                    rows.append((float(json.loads(key)), str(json.loads(text))))
                elif self.path.endswith(".jsonl"):
                    value = json.loads(line)
                    rows.append((float(value["k"]), value["v"]))
                else:
                    key, _, text = line.partition(" ")
                    rows.append((float(key), text))
        return rows

    def render(self, rows: list[tuple[float, str]]) -> bytes:
        if self.path.endswith(".json"):
            body = ",\n".join(f'  "{key}": "{text}"' for key, text in rows)
            return f"{{\n{body}\n}}\n".encode()
        return b"".join(self.line(key, text) for key, text in rows)

    def line(self, key: float, text: str) -> bytes:
        if self.path.endswith(".jsonl"):
            return f'{{"k":{key},"v":"{text}"}}\n'.encode()
        return f"{key} {text}\n".encode()

    def fresh(self) -> tuple[float, str]:
        self.counter += 1
        return float(self.counter), f"w{self.counter}"

    def edited(self, chance: random.Random) -> bytes:
        """Some lines more, less or otherwise than now."""
        rows = self.lines()
        for _ in range(chance.choice((1, 1, 2, 4))):
            what = chance.choice(("insert", "replace", "remove", "return"))
            if what == "insert" or not rows:
                key, text = self.fresh()
                if rows and chance.random() < 0.7:
                    at = chance.randrange(len(rows))
                    below = rows[at - 1][0] if at else 0.0
                    key = (below + rows[at][0]) / 2
                    if key in (below, rows[at][0]):
                        continue
                rows = sorted([*rows, (key, text)])
            elif what == "replace":
                at = chance.randrange(len(rows))
                rows[at] = (rows[at][0], self.fresh()[1])
            elif what == "remove":
                rows.pop(chance.randrange(len(rows)))
            else:
                keys = {key for key, _ in rows}
                old = [line for state in self.states for line in self._lines_of(state[1]) if line[0] not in keys]
                if old:
                    rows = sorted([*rows, chance.choice(old)])
        return self.render(rows)

    def _lines_of(self, content: bytes | None) -> list[tuple[float, str]]:
        return Model(self.path, now=content).lines()

    def record(self, rev: int, content: bytes | None) -> None:
        old = self.owners
        self.owners = {line: old.get(line, rev) for line in (content or b"").splitlines()}
        self.states.append((rev, content))
        self.now = content

    def at(self, rev: int) -> bytes | None:
        return dict(self.states)[rev]

    @property
    def recorded(self) -> bytes | None:
        return self.states[-1][1] if self.states else None


async def look(at: Trial, model: Model) -> None:
    """Have an edit by hand recorded, in the model too."""
    await at.change(("look", model.path, "", 0))
    if model.now != model.recorded:
        row = (await at.log(model.path))[0]
        assert row["origin"] == "outside"
        model.record(row["rev"], model.now)


async def compare(at: Trial, model: Model) -> None:
    assert at.read(model.path) == model.now
    if not model.states:
        return
    expected = [(line.decode(), model.owners[line]) for line in (model.now or b"").splitlines()]
    assert await at.blame(model.path) == expected


async def operate(at: Trial, models: list[Model], chance: random.Random) -> None:
    model = chance.choice(models)
    what = chance.choice(
        ("write", "write", "append", "append", "edit", "delete", "hand", "hand", "hand", "break", "unlink", "restore",
         "restore", "restore", "undo", "undo", "undo", "two", "restart", "look")
    )  # fmt: skip
    is_lines = model.path.endswith(".jsonl")
    broken = model.path.endswith(".json") and model.now == b"{ broken"
    if what in ("write", "two"):
        chosen = models if what == "two" else [model]
        for one in chosen:
            await look(at, one)
        new = {one.path: one.edited(chance) for one in chosen}
        before = {one.path: one.now for one in chosen}
        rev = await at.change(*(("write", path, raw.decode("latin-1"), 0) for path, raw in new.items()))
        for one in chosen:
            if new[one.path] != before[one.path]:
                one.record(rev, new[one.path])
                one.calls.append((f"call-{at.calls}", rev, before[one.path]))
    elif what == "append" and is_lines:
        # Without a look first: what was edited by hand is recorded on the way, with the number before.
        pending, last = model.now != model.recorded, model.now
        line = model.line(*model.fresh())
        rev = await at.change(("append", model.path, line.decode(), 0))
        call = f"call-{at.calls}"
        if pending:
            rows = await at.log(model.path)
            assert (rows[0]["rev"], rows[1]["origin"]) == (rev, "outside")
            model.record(rows[1]["rev"], last)
        model.record(rev, (last or b"") + line)
        model.calls.append((call, rev, last))
    elif what == "edit" and is_lines and model.now:
        await look(at, model)
        lines = model.lines()
        number = chance.randrange(len(lines))
        lines[number] = (lines[number][0], model.fresh()[1])
        before_edit = model.now
        rev = await at.change(("edit", model.path, model.line(*lines[number]).decode().rstrip("\n"), number))
        model.record(rev, model.render(lines))
        model.calls.append((f"call-{at.calls}", rev, before_edit))
    elif what == "delete":
        await look(at, model)
        before_delete = model.now
        rev = await at.change(("delete", model.path, "", 0))
        if rev:
            model.record(rev, None)
            model.calls.append((f"call-{at.calls}", rev, before_delete))
    elif what == "hand" and not broken:
        raw = model.edited(chance)
        if chance.random() < 0.5:
            at.put(model.path, raw)
        else:
            (at.root / model.path).write_bytes(raw)
        model.now = raw
    elif what == "break" and model.path.endswith(".json"):
        at.put(model.path, b"{ broken")
        model.now = b"{ broken"
    elif what == "unlink" and model.now is not None:
        (at.root / model.path).unlink()
        model.now = None
    elif what == "restore" and model.states:
        await look(at, model)
        wanted, content = chance.choice(model.states)
        before_restore = model.now
        if content == b"{ broken":
            with pytest.raises(Refused, match="not JSON"):
                await at.restore(model.path, wanted)
            return
        answer = await at.restore(model.path, wanted)
        assert answer.result["changed"] == (content != before_restore)
        if answer.rev is not None:
            model.record(answer.rev, content)
            model.calls.append((f"call-{at.calls}", answer.rev, before_restore))
    elif what == "undo":
        await undo(at, models, chance)
    elif what == "restart":
        await at.engine.close()
        await at.start()
    elif what == "look":
        await look(at, model)


async def undo(at: Trial, models: list[Model], chance: random.Random) -> None:
    calls = sorted({call for model in models for call, _, _ in model.calls}, key=lambda call: int(call[5:]))
    if not calls:
        return
    call = chance.choice(calls[-3:] if chance.random() < 0.7 else calls)
    touched = [(model, rev, before) for model in models for name, rev, before in model.calls if name == call]
    as_left = all(model.states[-1][0] == rev and model.now == model.recorded for model, rev, _ in touched)
    brings_back_broken = any(before == b"{ broken" for _, _, before in touched)
    if not as_left or brings_back_broken:
        with pytest.raises(Refused) as refused:
            await at.undo(call)
        if not as_left:
            named = {place["path"] for place in refused.value.data["changed"]}
            assert named == {
                model.path for model, rev, _ in touched if model.states[-1][0] != rev or model.now != model.recorded
            }
        for model, _, _ in touched:
            await look(at, model)
        return
    answer = await at.undo(call)
    assert answer.rev is not None
    for model, _, before in touched:
        there = model.now
        model.record(answer.rev, before)
        model.calls.append((f"call-{at.calls}", answer.rev, there))


async def many(home: Path, chance: random.Random, count: int) -> None:
    async with trial(home) as at:
        models = [Model("a.json"), Model("log.jsonl"), Model("notes.md")]
        for number in range(count):
            await operate(at, models, chance)
            if number % 20 == 19:
                for model in models:
                    await look(at, model)
                    await compare(at, model)
        for model in models:
            await look(at, model)
            await compare(at, model)
            for rev, content in model.states:
                assert await at.show(model.path, rev) == content
            rows = await at.log(model.path)
            assert [row["rev"] for row in reversed(rows)] == [rev for rev, _ in model.states]
            for rev, content in random.Random(1).sample(model.states, min(20, len(model.states))):
                if content != b"{ broken":
                    await at.restore(model.path, rev)
                    assert at.read(model.path) == content


@pytest.mark.timeout(300)
@settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # 200 operations are not made fewer by trying again and again
    suppress_health_check=list(HealthCheck),
)
@given(st.integers(0, 1 << 32))
def test_two_hundred_operations_and_every_state_comes_back(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    asyncio.run(many(tmp_path_factory.mktemp("many"), random.Random(seed), 200))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(
    max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.integers(0, 1 << 32))
def test_many_times_two_hundred_operations(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    asyncio.run(many(tmp_path_factory.mktemp("many"), random.Random(seed), 200))


# The bound ------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@settings(
    max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.integers(0, 1 << 32))
def test_the_history_keeps_its_bound_and_what_it_keeps_is_right(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        bound = 1200
        async with trial(tmp_path_factory.mktemp("bound"), history_bytes=bound) as at:
            models = [Model("a.json"), Model("log.jsonl"), Model("notes.md")]
            kept_ever: dict[tuple[str, int], bool] = {}
            for number in range(200):
                await operate_or_skip(at, models, chance)
                if number % 25 == 24:
                    for model in models:
                        await look(at, model)
                    await at.settled()
                    assert at.engine.journal.held[0] == at.held()
                    needed = sum(len(model.now or b"") for model in models) + sum(
                        max((len(c) for _, c in model.states if c is not None and c != b"{ broken"), default=0)
                        for model in models
                    )
                    assert at.held() <= max(bound, 2 * needed)
                    for model in models:
                        await check_kept(at, model, kept_ever)
            assert not all(kept_ever.values())

    asyncio.run(main())


async def operate_or_skip(at: Trial, models: list[Model], chance: random.Random) -> None:
    """What is no longer kept can be neither restored nor undone: then nothing has changed."""
    try:
        await operate(at, models, chance)
    except (Refused, AssertionError) as error:
        if "dropped" not in str(error):
            raise
        for model in models:
            assert at.read(model.path) == model.now


async def check_kept(at: Trial, model: Model, kept_ever: dict[tuple[str, int], bool]) -> None:
    good = [rev for rev, content in model.states if content is not None and content != b"{ broken"]
    shown = set()
    for rev, content in model.states:
        try:
            found = await at.show(model.path, rev)
        except Refused as error:
            if "dropped" not in error.reason:
                raise
            kept_ever[model.path, rev] = False
        else:
            assert found == content
            assert kept_ever.setdefault((model.path, rev), True), "what was dropped came back"
            shown.add(rev)
    if model.states:
        assert model.states[-1][0] in shown
    if good:
        assert good[-1] in shown, "the last good revision"


def noise(seed: float, size: int) -> str:
    """A line that shares nothing with another one."""
    return random.Random(seed).randbytes(size // 2).hex() + "\n"


def test_the_oldest_content_goes_first_and_rows_stay(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        revs = []
        for number in range(120):
            revs.append(await at.change(("write", "a.md", noise(number, 500), 0)))
            revs.append(await at.change(("write", "b.md", noise(-number, 500), 0)))
        await at.settled()
        rows = await at.log()
        assert [row["rev"] for row in reversed(rows)] == revs
        kept = [row["rev"] for row in rows if row["kept"]]
        assert 4 < len(kept) < 120
        assert at.held() <= 10_000
        for path in ("a.md", "b.md"):
            of_path = [row["rev"] for row in rows if row["path"] == path]
            of_kept = [rev for rev in of_path if rev in kept]
            assert of_path[: len(of_kept)] == of_kept
        owners = {rev for _, rev in await at.blame("a.md")}
        assert owners == {revs[-2]}

    play(body, tmp_path, history_bytes=10_000)


def test_what_an_open_conflict_needs_stays_until_its_copy_is_gone(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        copy = tmp_path / "copy"
        copy.write_bytes(b"theirs")
        rev = await at.change(("write", "a.md", "the one that met\n", 0))
        root = str(at.root)
        at.engine.journal.record([], [], [Notice(root, "a.md", "two edits met", "compare", str(copy))])
        with at.engine.journal.transaction() as db:
            db.execute("UPDATE revisions SET at = at - 10")

        async def fill() -> None:
            for number in range(40):
                await at.change(("write", "a.md", noise(number, 900), 0))
            await at.settled()

        await fill()
        assert await at.show("a.md", rev) == b"the one that met\n"
        copy.unlink()
        await fill()
        with pytest.raises(Refused, match="dropped"):
            await at.show("a.md", rev)

    play(body, tmp_path, history_bytes=8_000)


def test_a_bound_of_nothing_keeps_nothing(tmp_path: Path) -> None:
    async def before(at: Trial) -> None:
        await at.change(("write", "a.md", "one\n", 0), ("append", "log.jsonl", '{"n":1}\n', 0))

    async def body(at: Trial) -> None:
        await at.settled()
        assert at.held() == 0
        rev = await at.change(("write", "a.md", "two\n", 0), ("append", "log.jsonl", '{"n":2}\n', 0))
        at.put("a.md", b"three\n")
        await at.change(("look", "a.md", "", 0))
        assert at.held() == 0
        with pytest.raises(Refused, match="switched off"):
            await at.show("a.md", rev)
        assert len(await at.log("a.md")) == 3

    async def after(at: Trial) -> None:
        first = await at.change(("write", "a.md", "four\n", 0))
        second = await at.change(("write", "a.md", "five\n", 0))
        assert (await at.show("a.md", first), await at.show("a.md", second)) == (b"four\n", b"five\n")

    play(before, tmp_path)
    play(body, tmp_path, history_bytes=0)
    play(after, tmp_path)


def test_rows_without_content_go_too_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(at: Trial) -> None:
        at.engine._keeper._most = 60
        for number in range(200):
            await at.change(("write", f"{number % 3}.md", f"{number}\n", 0))
        await at.settled()
        rows = await at.log()
        assert len(rows) <= 60
        assert at.engine.journal.held[1] == len(rows)
        assert {row["path"] for row in rows} == {"0.md", "1.md", "2.md"}
        assert all([await at.show(row["path"], row["rev"]) for row in rows if row["kept"]])

    play(body, tmp_path)


def test_the_journal_does_not_grow_without_end(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        chance = random.Random(5)
        sizes = []
        for _ in range(6):
            for _ in range(40):
                await at.change(("write", "a.md", noise(chance.random(), 40_000), 0))
            await at.settled()
            sizes.append((await at.engine.status())["history"]["file_bytes"])
        assert max(sizes[2:]) <= 1.5 * sizes[1]
        assert (await at.engine.status())["history"]["bytes"] <= 200_000

    play(body, tmp_path, history_bytes=200_000)


# Purge ----------------------------------------------------------------------------------------------------------------


def test_purge_leaves_no_trace_of_the_content_in_the_journal(tmp_path: Path) -> None:
    secret = "anna.svensson@example.org"

    async def body(at: Trial) -> None:
        first = await at.change(("write", "a.md", f"{secret}\n", 0))
        await at.change(("write", "a.md", "nobody\n", 0))
        third = await at.change(("write", "a.md", "nobody\nat all\n", 0))
        other = await at.change(("write", "b.md", "stays\n", 0))
        answer = await at.engine.purge("a.md", third, at.caller)
        assert (answer["revisions"], answer["path"]) == (2, "a.md")
        with pytest.raises(Refused, match="purge"):
            await at.show("a.md", first)
        assert await at.show("a.md", third) == b"nobody\nat all\n"
        assert [rev for _, rev in await at.blame("a.md")] == [f"<{third}", third]
        assert secret.encode() not in journal(at)
        await at.engine.purge("a.md", None, at.caller)
        with pytest.raises(Refused, match="purge"):
            await at.show("a.md", third)
        assert at.read("a.md") == b"nobody\nat all\n"
        assert await at.show("b.md", other) == b"stays\n"
        assert b"at all" not in journal(at)
        assert at.engine.journal.held[0] == at.held()
        assert await at.blame("a.md") == [("nobody", f"<{third}"), ("at all", f"<{third}")]
        # What comes next is kept again.
        after = await at.change(("write", "a.md", "nobody\nagain\n", 0))
        assert await at.show("a.md", after) == b"nobody\nagain\n"
        assert (await at.engine.purge("a.md", 1, at.caller))["revisions"] == 0

    def journal(at: Trial) -> bytes:
        path = config.journal_path(str(at.home))
        return b"".join(Path(path + suffix).read_bytes() for suffix in ("", "-wal") if os.path.exists(path + suffix))

    play(body, tmp_path)


def test_forgetting_a_root_forgets_its_figures(tmp_path: Path) -> None:
    async def body(at: Trial) -> None:
        await at.change(("write", "a.md", "one\n", 0))
        await at.settled()
        await at.engine.forget(str(at.root))
        assert at.held() == 0
        await at.change(("write", "a.md", "two\n", 0))
        await at.settled()
        assert at.engine.journal.held == (at.held(), 2)

    play(body, tmp_path)


# Words ----------------------------------------------------------------------------------------------------------------


def durations() -> Iterator[tuple[str, int]]:
    yield from (("90s", 90), ("30m", 1800), ("24h", 86400), ("7d", 604800), ("2w", 1209600), ("0d", 0))


def test_since_takes_durations_and_dates() -> None:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    now = datetime(2026, 9, 7, 6, 0, tzinfo=ZoneInfo("Europe/Oslo"))
    for text, seconds in durations():
        assert history.since(text, now) == int(now.timestamp()) - seconds
    assert history.since("2026-09-07", now) == int(now.timestamp()) - 6 * 3600
    assert history.since("2026-09-07T04:00:00Z", now) == int(now.timestamp())
    for text in ("", "d", "7", "7 d", "-7d", "yesterday", "٣d", "99999999999d"):
        with pytest.raises(StatedError):
            history.since(text, now)
