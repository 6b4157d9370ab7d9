"""`stated.core`: what its commands ask of the service and make of the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from stated import __version__, config
from stated.call import Answer, Call
from stated.cli import Commands, Parsed, render
from stated.core import CORE, PROTOCOL
from stated.domain import Caller, Context, Domain, Kind, Location, Outcome
from stated.domains import RESERVED
from stated.errors import Refused, StatedError, Unavailable, Usage


def locate(caller: Caller, announced: str | None) -> Location:
    return Location("/state", "default")


TRIAL = Domain(name="trial", title="Trial", summary="For tests.", operations=(), locate=locate)
CALLER = Caller(home="/home/u", cwd="/home/u/work", version="0.0.9", env={"CLAUDE_ENV_FILE": "/tmp/env"})


class Recorder:
    """A service that answers from `answers` and notes what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    def _answer(self, name: str, *asked: object) -> Any:
        self.asked.append((name, *asked))
        answer = self.answers.get(name, {})
        if isinstance(answer, StatedError):
            raise answer
        return answer

    async def submit(self, call: Call) -> Answer:
        raise AssertionError("the core's own operations do not submit")

    async def status(self) -> dict[str, Any]:
        return dict(self._answer("status"))

    async def where(self, domain: Domain, caller: Caller) -> dict[str, Any]:
        return dict(self._answer("where", domain.name))

    async def roots(self) -> list[dict[str, Any]]:
        return list(self._answer("roots"))

    async def forget(self, root: str) -> dict[str, Any]:
        return dict(self._answer("forget", root))

    async def doctor(self, targets: Sequence[str], caller: Caller) -> list[dict[str, Any]]:
        return list(self._answer("doctor", tuple(targets)))

    async def log(
        self, path: str | None, since: str | None, limit: int, origin: str | None, caller: Caller
    ) -> dict[str, Any]:
        return dict(self._answer("log", path, since, limit, origin))

    async def show(self, path: str, rev: int, caller: Caller) -> dict[str, Any]:
        return dict(self._answer("show", path, rev))

    async def diff(self, path: str, rev: int, to: int | None, caller: Caller) -> dict[str, Any]:
        return dict(self._answer("diff", path, rev, to))

    async def blame(self, path: str, caller: Caller) -> dict[str, Any]:
        return dict(self._answer("blame", path))

    async def restore(self, path: str, rev: int, call: Call) -> Answer:
        return Answer(self._answer("restore", path, rev, call.id, call.if_rev, call.dry_run))

    async def undo(self, undone: str, call: Call) -> Answer:
        return Answer(self._answer("undo", undone, call.id, call.dry_run))

    async def purge(self, path: str, before: int | None, caller: Caller) -> dict[str, Any]:
        return dict(self._answer("purge", path, before))

    async def announce(self, caller: Caller, session: str, only_lines: bool = False) -> dict[str, Any]:
        return dict(self._answer("announce", session))

    def request_stop(self) -> None:
        self._answer("stop")


def serve(
    service: Recorder, line: Sequence[str], caller: Caller = CALLER, stdin: str | None = None
) -> tuple[Parsed, Outcome]:
    parsed = Commands([TRIAL]).parse(line, "statectl", caller, stdin, "c")
    assert isinstance(parsed, Parsed), parsed
    run, queue = parsed.call.operation.serve, parsed.call.operation.queue
    context = Context(datetime(2026, 9, 7, tzinfo=UTC), UTC, caller, "c", "")

    async def call() -> Outcome:
        if queue is not None:
            return Outcome((await queue(service, parsed.call)).result)
        assert run is not None
        outcome: Outcome = await run(service, parsed.call.params, context)
        return outcome

    return parsed, asyncio.run(call())


ROW = {"root": "/r", "path": "a.json", "line": 3, "problem": "is broken", "hint": "mend it"}

CASES: list[tuple[list[str], dict[str, Any], list[Any], Any, int]] = [
    (["version"], {}, [], {"statectl": "0.0.9", "stated": __version__, "protocol": PROTOCOL}, 0),
    (["status"], {"status": {"queue": 0}}, [("status",)], {"queue": 0}, 0),
    (["stop"], {}, [("stop",)], {"stopping": True}, 0),
    (["doctor"], {"doctor": []}, [("doctor", ())], {"findings": []}, 0),
    (["doctor", "trial", "./x"], {"doctor": [ROW]}, [("doctor", ("trial", "./x"))], {"findings": [ROW]}, 1),
    (["where", "trial"], {"where": {"root": "/state"}}, [("where", "trial")], {"root": "/state"}, 0),
    (["roots", "list"], {"roots": [{"root": "/r"}]}, [("roots",)], {"roots": [{"root": "/r"}]}, 0),
    (["roots", "forget", "/r/"], {}, [("forget", "/r")], {}, 0),
    (["roots", "forget", "../r"], {}, [("forget", "/home/u/r")], {}, 0),
    (["rpc", "daemon.roots.forget", "root=/r"], {}, [("forget", "/r")], {}, 0),
    (["log"], {"log": {"revisions": []}}, [("log", None, None, 50, None)], {"revisions": []}, 0),
    (
        ["log", "a", "--since", "7d", "--limit", "3", "--origin", "outside"],
        {},
        [("log", "a", "7d", 3, "outside")],
        {},
        0,
    ),
    (["show", "a@b@12"], {}, [("show", "a@b", 12)], {}, 0),
    (["show", "@1@2"], {}, [("show", "@1", 2)], {}, 0),
    (["diff", "a@1"], {}, [("diff", "a", 1, None)], {}, 0),
    (["diff", "a@1..2"], {}, [("diff", "a", 1, 2)], {}, 0),
    (["blame", "a@1"], {}, [("blame", "a@1")], {}, 0),
    (["restore", "a@1", "--if-rev", "7", "--dry-run"], {}, [("restore", "a", 1, "c", 7, True)], {}, 0),
    (["undo", "x", "--call", "y"], {}, [("undo", "x", "y", False)], {}, 0),
    (["purge", "a"], {}, [("purge", "a", None)], {}, 0),
    (["purge", "a", "--before", "7"], {}, [("purge", "a", 7)], {}, 0),
    (["rpc", "daemon.purge", "path=a", "before=7"], {}, [("purge", "a", 7)], {}, 0),
]


@pytest.mark.parametrize(("line", "answers", "asked", "result", "status"), CASES)
def test_commands(line: list[str], answers: dict[str, Any], asked: list[Any], result: Any, status: int) -> None:
    service = Recorder(**answers)
    _, outcome = serve(service, line)
    assert (service.asked, outcome.result, outcome.status) == (asked, result, status)


def test_hello_tells_versions_and_limits() -> None:
    _, outcome = serve(Recorder(), ["rpc", "rpc.hello"])
    assert outcome.result["protocol"] == PROTOCOL
    assert outcome.result["limits"]["line"] == config.MAX_LINE


def test_discover_lists_every_method() -> None:
    _, outcome = serve(Recorder(), ["rpc", "rpc.discover"])
    assert {row["name"] for row in outcome.result["methods"]} == set(Commands([TRIAL]).methods)


@pytest.mark.parametrize(
    "line",
    [["where", "trail"], ["roots", "forget", ""]]
    + [["show", word] for word in ("a", "a@", "a@x", "a@1..2", "@1", "a@1 ", "a@٣", f"a@{'9' * 19}")]
    + [["restore", "a@-1"], ["diff", "a@1.."], ["diff", "a@1...2"], ["diff", "a"]],
)
def test_an_argument_that_names_nothing_is_a_usage_error(line: list[str]) -> None:
    with pytest.raises(Usage):
        serve(Recorder(), line)


def test_a_relative_root_needs_a_working_directory() -> None:
    with pytest.raises(Usage):
        serve(Recorder(), ["roots", "forget", "r"], replace(CALLER, cwd=None))


def test_versions_are_readable() -> None:
    parsed, outcome = serve(Recorder(), ["--human", "version"])
    assert render(parsed, Answer(outcome.result)).out == (
        f"statectl 0.0.9\nstated {__version__} (protocol {PROTOCOL})\n"
    )


def test_findings_are_shown_whole_however_narrow_the_terminal_is() -> None:
    rows = [{**ROW, "problem": "x" * 200}, {"root": "/r", "path": "", "line": None, "problem": "p", "hint": ""}]
    parsed, outcome = serve(Recorder(doctor=rows), ["--human", "doctor"])
    assert render(parsed, Answer(outcome.result, 1)).out == f"/r/a.json:3: {'x' * 200}\n  mend it\n/r: p\n"
    parsed, outcome = serve(Recorder(doctor=[]), ["--human", "doctor"])
    assert render(parsed, Answer(outcome.result)).out == "nothing to report\n"


LOGGED = {
    "rev": 3,
    "path": "a.md",
    "root": "/r",
    "origin": "call",
    "call": "c",
    "method": "t.put",
    "at": "T",
    "kept": True,
}
COUNTED = {"size": 1, "what": "changed", "added": 2, "removed": 1}
BY_HAND = {"rev": None, "origin": "outside", "call": None, "method": None, "at": None, "kept": False}


def test_the_history_is_readable() -> None:
    older = {**LOGGED, **COUNTED, "added": None, "kept": False}
    rows = [{**LOGGED, **COUNTED, **BY_HAND}, {**LOGGED, **COUNTED}, older]
    parsed, outcome = serve(Recorder(log={"revisions": rows, "more": True}), ["--human", "log"])
    assert render(parsed, Answer(outcome.result)).out == (
        "in /r\n"
        "rev    at  change         path  by\n"
        "(new)  -   changed +2 -1  a.md  by hand\n"
        "3      T   changed +2 -1  a.md  t.put, call c\n"
        "3      T   changed        a.md  t.put, call c (content not kept)\n"
        "(older ones: --limit N)\n"
    )
    line = {"line": 1, "text": "one", "before": None}
    lines = [{**line, **LOGGED}, {**line, **BY_HAND}, {**line, **BY_HAND, "before": 7}]
    parsed, outcome = serve(Recorder(blame={"exists": True, "lines": lines}), ["--human", "blame", "a"])
    assert render(parsed, Answer(outcome.result)).out == (
        "revision 3, T, t.put, call c\n"
        "     1  one\n"
        "revision (new), by hand\n"
        "     1  one\n"
        "revision 7 or before: who changed it is no longer known\n"
        "     1  one\n"
    )


ID = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (60, ["rev  at    change         path", "3    T     changed +2 -1  a.md", f"      t.put, call {ID}"]),
        (20, ["rev:    3", "at:     T", "change: changed +2", "path:   a.md", "by:", "  t.put, call", f"  {ID}"]),
    ],
)
def test_no_id_and_no_path_is_ever_cut(width: int, expected: list[str]) -> None:
    rows = [{**LOGGED, **COUNTED, "call": ID}, {**LOGGED, **COUNTED, "at": "2026", "root": "/r"}]
    parsed, outcome = serve(Recorder(log={"revisions": rows, "more": False}), ["--human", "log"])
    lines = render(replace(parsed, view=replace(parsed.view, width=width)), Answer(outcome.result)).out.splitlines()
    assert lines[0] == "in /r"
    assert [line for line in expected if line not in lines] == []
    two = [{**LOGGED, **COUNTED}, {**LOGGED, **COUNTED, "root": "/s"}]
    parsed, outcome = serve(Recorder(log={"revisions": two, "more": False}), ["--human", "log"])
    out = render(parsed, Answer(outcome.result)).out
    assert "/r/a.md" in out
    assert "/s/a.md" in out


UNDONE = {"undone": "c", "documents": [{"root": "/r", "path": "a", "from": 2, "to": None}], "rev": 9}
SENTENCES: list[tuple[list[str], dict[str, Any], str]] = [
    (["log"], {"log": {"revisions": [], "more": False}}, "nothing is recorded\n"),
    (["roots", "list"], {"roots": []}, "no roots yet\n"),
    (["stop"], {}, "the daemon has stopped\n"),
    (["diff", "a@1"], {"diff": {"diff": ""}}, "no difference\n"),
    (["diff", "a@1"], {"diff": {"diff": "--- a\n"}}, "--- a\n"),
    (["show", "a@1"], {"show": {"rev": 1, "path": "a", "exists": False, "text": None}}, "the document was absent\n"),
    (["undo", "c"], {"undo": UNDONE}, "undone: call c\n/r/a: absent, as before\nrev: 9\n"),
]


@pytest.mark.parametrize(("line", "answers", "expected"), SENTENCES)
def test_what_a_person_reads_is_a_sentence(line: list[str], answers: dict[str, Any], expected: str) -> None:
    parsed, outcome = serve(Recorder(**answers), ["--human", *line])
    assert render(parsed, Answer(outcome.result)).out == expected


def test_an_empty_diff_off_a_terminal_is_empty() -> None:
    parsed, outcome = serve(Recorder(diff={"diff": ""}), ["diff", "a@1"])
    assert render(parsed, Answer(outcome.result)).out == ""


@pytest.mark.parametrize(("text", "shown"), [("one", "one"), ("", ""), (None, "")])
def test_show_prints_the_bytes_of_the_document_and_no_more(text: str | None, shown: str) -> None:
    found = {"rev": 1, "path": "a", "exists": text is not None, "text": text}
    parsed, outcome = serve(Recorder(show=found), ["show", "a@1"])
    assert render(parsed, Answer(outcome.result)).out == shown


def test_show_does_not_print_what_is_no_text() -> None:
    found = {"rev": 1, "path": "a", "exists": True, "text": None, "base64": "gA==", "bad_byte": 0}
    parsed, outcome = serve(Recorder(show=found), ["show", "a@1"])
    with pytest.raises(Refused, match="no UTF-8"):
        render(parsed, Answer(outcome.result))
    parsed, outcome = serve(Recorder(show=found), ["--json", "show", "a@1"])
    assert json.loads(render(parsed, Answer(outcome.result)).out) == found


# The hook -------------------------------------------------------------------------------------------------------------

LINES = ["State directory: /state", "no profile is cached"]
INPUT = json.dumps({"session_id": "s 1", "source": "startup"})


def hook(service: Recorder, stdin: str | None, *flags: str, **env: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    parsed, outcome = serve(service, ["hook", "session-start", *flags], replace(CALLER, env=env), stdin)
    reply = render(parsed, Answer(outcome.result, outcome.status, hand=outcome.hand))
    assert reply.status == 0
    return reply.out, reply.hand


def test_the_hook_prints_the_announcement_in_the_form_asked_for() -> None:
    service = Recorder(announce={"lines": LINES, "session": "s 1"})
    out, _ = hook(service, INPUT)
    told = {"hookEventName": "SessionStart", "additionalContext": "\n".join(LINES)}
    assert json.loads(out) == {"hookSpecificOutput": told}
    assert hook(service, INPUT, "--format", "plain")[0] == "State directory: /state\nno profile is cached\n"
    assert service.asked == [("announce", "s 1")] * 2


HANDS: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"CLAUDE_ENV_FILE": ""}, None),
    ({"CLAUDE_ENV_FILE": "/e"}, "export STATED_SESSION='s 1'\n"),
    ({"CLAUDE_ENV_FILE": "/e", "STATED_SESSION": "other"}, "export STATED_SESSION='s 1'\n"),
    ({"CLAUDE_ENV_FILE": "/e", "STATED_SESSION": "s 1"}, None),
]


@pytest.mark.parametrize(("env", "expected"), HANDS)
def test_the_hook_hands_the_session_on_once(env: dict[str, str], expected: str | None) -> None:
    service = Recorder(announce={"lines": LINES})
    _, hand = hook(service, INPUT, **env)
    assert hand == ((("CLAUDE_ENV_FILE", expected),) if expected else ())


@pytest.mark.parametrize(
    "stdin", [None, "", " \n", "{", "[]", "3", '{"session_id": 3}', '{"session_id": "a\\nb"}', "\udcff"]
)
def test_input_without_a_usable_session_still_gets_the_lines(stdin: str | None) -> None:
    service = Recorder(announce={"lines": LINES})
    out, hand = hook(service, stdin, "--format", "plain", CLAUDE_ENV_FILE="/e")
    assert (out, hand, service.asked) == ("\n".join(LINES) + "\n", (), [("announce", "")])


@pytest.mark.parametrize("announced", [{"lines": []}, Unavailable("read-only"), Refused("no")])
@pytest.mark.parametrize("form", ["claude", "plain"])
def test_with_nothing_to_say_the_hook_is_silent(announced: Any, form: str) -> None:
    out, _ = hook(Recorder(announce=announced), INPUT, "--format", form)
    assert out == ""


# The table ------------------------------------------------------------------------------------------------------------


def test_the_core_has_no_state_and_every_first_word_is_reserved() -> None:
    with pytest.raises(Refused):
        CORE.locate(CALLER, None)
    for operation in CORE.operations:
        if operation.name:
            assert operation.name.split()[0] in RESERVED
            assert operation.examples or operation.name == "where"


def test_every_row_serves_or_is_for_the_command_line_alone() -> None:
    without = {row.name for row in CORE.operations if row.serve is None and row.queue is None}
    assert without == {"rpc", "help"}
    kinds = {operation.name: operation.kind for operation in CORE.operations}
    assert (kinds["stop"], kinds["roots forget"], kinds["status"]) == (Kind.WRITER, Kind.MEMORY, Kind.READER)
