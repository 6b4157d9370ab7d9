"""`stated.cli`: a table of command lines and their calls, replies and pages; and what an answer looks like."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stated import __version__, cli
from stated.call import Answer
from stated.cli import Commands, Parsed, Reply, View
from stated.domain import Caller, Context, Docs, Domain, Kind, Location, Operation, Outcome
from stated.errors import Conflict, Internal, Refused, StatedError, Unavailable, Usage

Meta = msgspec.Meta


class Common(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    site: Annotated[str, Meta(description="The site.", extra={"metavar": "ID"})] = ""


class Get(Common, kw_only=True):
    limit: int = 10


class Put(Common, kw_only=True):
    why: Annotated[Literal["learned", "user"], Meta(description="Why it changes.")]
    data: dict[str, Any]


class One(Common, kw_only=True):
    name: Annotated[str, Meta(description="Which.", extra={"positional": True})]


def run(docs: Docs, params: Any, context: Context) -> Outcome:
    return Outcome({})


def locate(caller: Caller, announced: str | None) -> Location:
    return Location("/state", "default")


def text(result: Any) -> str:
    return f"# {result['title']}\n"


def human(result: Any, width: int) -> str:
    return f"\x1b[1m{result['title']}\x1b[0m {width}"


def row(name: str, kind: Kind, params: type[msgspec.Struct], **more: Any) -> Operation:
    return Operation(name=name, kind=kind, summary=f"About {name}.", params=params, run=run, **more)


TRIAL = Domain(
    name="trial",
    title="Trial",
    summary="State for tests.",
    locate=locate,
    options=("site",),
    operations=(
        row("get", Kind.READER, Get, examples=("trial get --limit 3",)),
        row("profile put", Kind.WRITER, Put, details="In full."),
        row("profile forget", Kind.MEMORY, One),
        row("map", Kind.READER, Get, text=text, human=human),
        row("map check", Kind.READER, Get),
    ),
    notes={"A choice": "It is so."},
    groups={"profile": "what is known"},
)
OLD = Domain(
    name="old",
    title="Old",
    summary="An older tool's state.",
    locate=locate,
    takes_over=True,
    unavailable_status=1,
    operations=(row("due", Kind.READER, Get), row("add-one", Kind.WRITER, Get)),
)
COMMANDS = Commands([TRIAL, OLD])
CALLER = Caller(home="/home/u", cwd="/home/u", version="0.0.9")
TERMINAL = Caller(home="/home/u", cwd="/home/u", tty=True, width=60)


def parse(
    line: str | list[str], program: str = "statectl", caller: Caller = CALLER, stdin: str | None = None
) -> Reply | Parsed:
    return COMMANDS.parse(line.split() if isinstance(line, str) else line, program, caller, stdin, "made")


def parsed(line: str | list[str], program: str = "statectl", caller: Caller = CALLER) -> Parsed:
    done = parse(line, program, caller)
    assert isinstance(done, Parsed), done
    return done


def ready(line: str | list[str], program: str = "statectl", caller: Caller = CALLER) -> Reply:
    done = parse(line, program, caller)
    assert isinstance(done, Reply), done
    return done


# Calls ----------------------------------------------------------------------------------------------------------------

CALLS: list[tuple[str, str, msgspec.Struct]] = [
    ("trial get", "get", Get()),
    ("trial get --site x", "get", Get(site="x")),
    ("trial --site x get", "get", Get(site="x")),
    ("trial --site=x profile put --why user --data {}", "profile put", Put(site="x", why="user", data={})),
    ("trial profile --site x put --why user --data {}", "profile put", Put(site="x", why="user", data={})),
    ("trial profile forget a", "profile forget", One(name="a")),
    ("trial profile forget -- -a", "profile forget", One(name="-a")),
    ("trial map", "map", Get()),
    ("trial map --limit 3", "map", Get(limit=3)),
    ("trial map check", "map check", Get()),
    ("--json --timeout 2.5 -q trial get", "get", Get()),
    ("-- trial get", "get", Get()),
    ("old due --lim 3 --limit 4", "due", Get(limit=4)),
    ("rpc trial.get limit=3 site=x", "get", Get(limit=3, site="x")),
    ('rpc trial.profile.put --data {"why":"user","data":{"a":1}}', "profile put", Put(why="user", data={"a": 1})),
    ("rpc old.add_one", "add-one", Get()),
]


@pytest.mark.parametrize(("line", "name", "params"), CALLS)
def test_a_command_line_becomes_a_call(line: str, name: str, params: msgspec.Struct) -> None:
    call = parsed(line).call
    assert (call.operation.name, call.params, call.caller, call.id) == (name, params, CALLER, "made")


def test_a_writers_control_flags_reach_the_call_also_by_rpc() -> None:
    for line in [
        "trial profile put --why user --data {} --if-rev 7 --call mine --dry-run",
        'rpc trial.profile.put why=user data={} if_rev=7 call="mine" dry_run=true',
    ]:
        call = parsed(line).call
        assert (call.if_rev, call.id, call.dry_run) == (7, "mine", True)


def test_global_flags_are_carried_to_whom_they_concern() -> None:
    done = parsed("--timeout .5 --fresh --local --socket /s --human trial get")
    assert (done.timeout, done.fresh, done.local, done.view.human) == (0.5, True, True, True)


@pytest.mark.parametrize(
    ("line", "deadline"),
    [
        ("trial get", "read"),
        ("trial profile put --why user --data {}", "write"),
        ("trial profile forget a", "write"),
        ("hook session-start", "hook"),
        ("rpc trial.profile.forget name=a", "write"),
    ],
)
def test_each_command_has_its_deadline(line: str, deadline: str) -> None:
    assert parsed(line).deadline == deadline


def test_a_program_named_after_a_domain_has_its_commands_and_no_global_flags() -> None:
    assert parsed("due", "/usr/bin/old-state").call.operation.name == "due"
    assert parsed("get", "trial-state").call.operation.name == "get"
    assert ready("--json due", "old-state").status == 2


def test_standard_input_is_the_data_and_the_hooks_input() -> None:
    done = COMMANDS.parse("trial profile put --why user --data -".split(), "statectl", CALLER, '{"a":1.10}')
    assert isinstance(done, Parsed)
    assert done.call.params == Put(why="user", data={"a": Decimal("1.10")})
    hook = COMMANDS.parse(["hook", "session-start"], "statectl", CALLER, "not json")
    assert isinstance(hook, Parsed)


# Errors ---------------------------------------------------------------------------------------------------------------

ERRORS: list[tuple[str, int, str]] = [
    ("trail get", 2, "no command trail; did you mean trial?"),
    ("wat", 2, "no command wat; see statectl help"),
    ("trial", 2, "trial: needs one of: get, map, profile; see statectl help trial"),
    ("trial gett", 2, "trial: no command gett; did you mean trial get?"),
    ("trial profile", 2, "trial profile: needs one of: forget, put; see statectl help trial profile"),
    ("trial get --json", 2, "trial get: --json: stands before the command only; write statectl --json trial get …"),
    ("trial --json get", 2, "trial: --json: stands before the command only; write statectl --json trial …"),
    ("trial --sit x get --site y", 2, "trial get: --site: stands there twice"),
    ("trial get --limits 3", 2, "trial get: --limits: no such flag; did you mean --limit?"),
    ("trial get x", 2, "trial get: takes no words, 1 too many; quote a value that contains spaces"),
    ("--site x trial get", 2, "--site: stands after trial only; write statectl trial --site ID …"),
    ("--site=x profile put", 2, "--site: stands after trial only; write statectl trial --site ID …"),
    ("--site x wat", 2, "--site: no such flag"),
    ("profile put --why user", 2, "no command profile; did you mean trial profile put?"),
    ("profile wat", 2, "no command profile; did you mean trial profile?"),
    ("start", 2, "no command start; the first command starts the daemon"),
    ("restart now", 2, "no command restart; end it with statectl stop; the next command starts it again"),
    ("trial --site profile put", 2, "trial: --site: took the word profile as its value; write statectl trial --site "),
    ("trial profile --site put", 2, "trial profile: --site: took the word put as its value; write statectl trial pr"),
    ("trial profile put --dry-run yes --why user --data {}", 2, "trial profile put: --dry-run: takes no value; leave "),
    ("old help", 2, "old: no command help"),
    ("trial get --dry-run", 2, "trial get: --dry-run: no such flag"),
    ("old add-one --dry-run", 2, "old add-one: --dry-run: no such flag"),
    ("stop --dry-run", 2, "stop: --dry-run: no such flag"),
    ("trial profile put --data {}", 2, "trial profile put: missing: --why; write --why learned|user\n"),
    ("where", 2, "where: missing: DOMAIN; there are: trial, old\n"),
    ("trial profile put --why user --data {", 1, "trial profile put: --data: not valid JSON: "),
    ("trial profile put --why user --data []", 1, "trial profile put: --data: expected an object, got a list"),
    ("--human --json trial get", 2, "--json and --human exclude each other"),
    ("--timeout 0 trial get", 2, "--timeout: expected a number of seconds above 0"),
    ("--timeout nan trial get", 2, "--timeout: expected a number of seconds above 0"),
    ("--bogus trial get", 2, "--bogus: no such flag"),
    ("--socket", 2, "--socket: needs a value; write --socket P"),
    ("rpc", 2, "rpc: missing: METHOD"),
    ("rpc trial.gett", 2, "rpc: no method trial.gett; did you mean trial.get?"),
    ("rpc trial.get limit", 2, "rpc trial.get: expected NAME=VALUE after the method"),
    ('rpc trial.get limit="3"', 2, "rpc trial.get: /limit: expected an integer, got a string"),
    ('rpc trial.get --data {"limit":"3"}', 1, "rpc trial.get: /limit: expected an integer, got a string"),
    ("rpc trial.get a=1 --data {}", 2, "rpc: K=V and --data exclude each other"),
    ("help wat", 2, "help: no command wat; see statectl help"),
    ("help trial gett", 2, "help: no command gett; did you mean trial get?"),
    ("hook session-start --bogus", 0, "hook session-start: --bogus: no such flag"),
    ("hook", 0, "hook: needs one of: session-start; see statectl help hook"),
]


@pytest.mark.parametrize(("line", "status", "expected"), ERRORS)
def test_a_failure_is_one_line_on_standard_error(line: str, status: int, expected: str) -> None:
    reply = ready(line)
    assert reply.status == status
    assert reply.err.startswith(f"statectl: {expected}")
    assert reply.err.count("\n") == 1
    assert (reply.out != "") is line.startswith("--human --json")


def test_json_gives_the_error_also_as_an_object() -> None:
    reply = ready("--json trial get --limits 3")
    assert reply.err.startswith("statectl: trial get: --limits: ")
    assert json.loads(reply.out) == {
        "error": {
            "code": -32602,
            "message": "no such flag",
            "data": {"kind": "usage", "where": "trial get: --limits", "hint": "did you mean --limit?"},
        }
    }


def test_an_older_tools_name_without_its_domain_fails_as_that_tool_would() -> None:
    reply = ready("due", "bodhi-state")
    assert (reply.status, reply.err.partition(":")[0]) == (1, "bodhi-state")
    assert json.loads(reply.out)["ok"] is False


@pytest.mark.parametrize(
    ("line", "error", "status", "expected"),
    [
        ("trial get", Refused("is broken", where="x profile.json"), 1, "x profile.json: is broken"),
        ("trial get", Conflict("is at revision 4"), 1, "trial get: is at revision 4"),
        ("trial get", Unavailable("no answer", hint="try again"), 3, "trial get: no answer; try again"),
        ("trial get", Internal("error 17"), 3, "trial get: error 17"),
        ("old due", Unavailable("no answer"), 1, "old due: no answer"),
        ("hook session-start", Unavailable("no answer"), 0, "hook session-start: no answer"),
        ("trial get", Refused("a\nb\x1b[2Jc\u202e"), 1, "trial get: a b\\x1b[2Jc\\u202e"),
    ],
)
def test_a_call_that_failed_has_the_status_of_its_fault(
    line: str, error: StatedError, status: int, expected: str
) -> None:
    reply = cli.render_error(parsed(line), error)
    assert (reply.status, reply.err) == (status, f"statectl: {expected}\n")


def test_an_error_before_any_call_can_be_shown_too() -> None:
    assert cli.render_error(None, Unavailable("stopping")) == Reply(err="statectl: stopping\n", status=3)


@given(st.lists(st.text(max_size=8) | st.sampled_from(["trial", "get", "--site", "-q", "rpc", "help", "--", "a=1"])))
def test_any_command_line_is_a_call_or_a_reply(line: list[str]) -> None:
    done = parse(line)
    if isinstance(done, Reply):
        assert done.status in (0, 1, 2)
        assert done.err.count("\n") == (0 if done.status == 0 and not done.err else 1)


# Help -----------------------------------------------------------------------------------------------------------------

PAGES: list[tuple[str, list[str]]] = [
    (
        "",
        ["Usage: statectl [GLOBAL FLAGS] COMMAND", "trial  State for tests.", "--timeout S", "Exit status:", "doctor"],
    ),
    ("help", ["Usage: statectl [GLOBAL FLAGS]"]),
    ("--help", ["Usage: statectl [GLOBAL FLAGS]"]),
    ("-h", ["Usage: statectl [GLOBAL FLAGS]"]),
    ("--json", ["Usage: statectl [GLOBAL FLAGS]"]),
    ("help trial", ["Trial: State for tests.", "trial profile put", "--site ID", "statectl help trial choices"]),
    ("help trial choices", ["A choice\n  It is so."]),
    ("trial help", ["Trial: State for tests."]),
    ("trial profile help", ["statectl trial profile: what is known\n"]),
    ("trial get help", ["Usage: statectl trial get"]),
    ("log help", ["Usage: statectl log"]),
    ("trial --help", ["Trial: State for tests."]),
    ("trial -h get", ["Trial: State for tests."]),
    ("help trial profile", ["trial profile put", "trial profile forget"]),
    ("trial profile --help", ["statectl trial profile: what is known\n", "trial profile put"]),
    ("old add-one --help", ["Usage: statectl old add-one"]),
    (
        "help trial profile put",
        [
            "In full.",
            "--why learned|user",
            "(needed)",
            "--data JSON|-",
            "--if-rev REV",
            "As a method: trial.profile.put",
            "Flags of the commands that write documents:",
            "\nGlobal flags: statectl --help. Exit: 0 done, 1 refused, 2 usage, 3 no state.\n",
        ],
    ),
    ("trial profile put --help", ["Usage: statectl trial profile put --why learned|user --data JSON|- [FLAGS]"]),
    ("trial profile put -h --nonsense", ["Usage:"]),
    ("trial get --help", ["--limit N", "(default: 10)", "Examples:\n  statectl trial get --limit 3"]),
    ("trial profile forget -h", ["Usage: statectl trial profile forget NAME", "Which."]),
    ("trial map -h", ["Below it:", "trial map check"]),
    ("help help", ["CMD"]),
    ("rpc --help", ["METHOD", "K=V"]),
    ("hook session-start --help", ["--format claude|plain", "Exit: always 0."]),
    ("diff --help", ["Words:\n  PATH@REV[..REV]  A document"]),
    ("doctor --help", ["Words:\n  PATH|DOMAIN…  Files"]),
    ("hook --help", ["hook session-start"]),
]


@pytest.mark.parametrize(("line", "parts"), PAGES)
def test_help_exists_at_every_level(line: str, parts: list[str]) -> None:
    reply = ready(line)
    assert (reply.status, reply.err) == (0, "")
    for part in parts:
        assert part in reply.out


def test_every_command_has_a_page_that_fits_and_names_all_its_flags() -> None:
    for name, (domain, operation) in COMMANDS.methods.items():
        if operation.name:
            words = [*filter(None, [domain.name]), *operation.name.split()]
            page = COMMANDS.page(words, 72)
            assert operation.summary in " ".join(page.split())
            assert f"As a method: {name}" in page
            assert all(len(line) <= 72 for line in page.splitlines())


def test_a_long_example_can_be_copied_and_its_quoted_words_stay_whole() -> None:
    line = "trial get --site 'a b c' " + " ".join(f"--limit {number}" for number in range(12))
    domain = replace(TRIAL, operations=(replace(TRIAL.operations[0], examples=(line,)),))
    shown = Commands([domain]).page(["trial", "get"], 60).partition("Examples:\n")[2].partition("\n\n")[0]
    assert all(len(part) <= 60 for part in shown.splitlines())
    assert shlex.split(shown.replace("\\\n", " ")) == ["statectl", *shlex.split(line)]


def test_the_reference_has_every_command_once() -> None:
    lines = COMMANDS.reference().splitlines()
    assert len(lines) == 2 + sum(bool(op.name) for domain in COMMANDS.domains for op in domain.operations)
    assert "| `statectl trial profile forget NAME [FLAGS]` | M | About profile forget. |" in lines


def test_the_version_needs_no_call() -> None:
    assert ready("--version").out == f"statectl 0.0.9 (stated {__version__})\n"


# Answers --------------------------------------------------------------------------------------------------------------


def test_off_a_terminal_an_answer_is_one_line_of_json() -> None:
    reply = cli.render(parsed("trial get"), Answer({"a": Decimal("1.10"), "b": "é"}, status=1, rev=7))
    assert reply == Reply(out='{"a":1.10,"b":"é","rev":7}\n', status=1)


def test_an_operations_own_revision_stays() -> None:
    assert cli.render(parsed("trial get"), Answer({"rev": 3}, rev=7)).out == '{"rev":3}\n'


VIEWS: list[tuple[str, Caller, str]] = [
    ("trial map", CALLER, "# a\x1bb\n"),
    ("trial map", TERMINAL, "# a\\x1bb\n"),
    ("--json trial map", CALLER, '{"title":"a\\u001bb"}\n'),
    ("--json trial map", TERMINAL, '{"title":"a\\u001bb"}\n'),
    ("--human trial map", CALLER, "\\x1b[1ma\\x1bb\\x1b[0m 80\n"),
    ("rpc trial.map", CALLER, '{"title":"a\\u001bb"}\n'),
    ("trial get", CALLER, '{"title":"a\\u001bb"}\n'),
    ("trial get", TERMINAL, "title: a\\x1bb\n"),
    ("--human trial get", CALLER, "title: a\\x1bb\n"),
    ("--json trial get", TERMINAL, '{"title":"a\\u001bb"}\n'),
    ("old due", TERMINAL, '{"title":"a\\u001bb"}\n'),
    ("-q trial get", CALLER, ""),
]


@pytest.mark.parametrize(("line", "caller", "expected"), VIEWS)
def test_how_an_answer_is_shown(line: str, caller: Caller, expected: str) -> None:
    assert cli.render(parsed(line, caller=caller), Answer({"title": "a\x1bb"})).out == expected


def test_json_on_a_terminal_holds_nothing_that_a_terminal_acts_on() -> None:
    out = cli.render(parsed("--json trial get", caller=TERMINAL), Answer({"a": "\x9b2J\u202e\x7f"})).out
    assert out.strip().isprintable()
    assert json.loads(out) == {"a": "\x9b2J\u202e\x7f"}


def test_a_file_name_that_is_no_utf_8_does_not_lose_the_answer() -> None:
    assert cli.render(parsed("trial get"), Answer({"paths": ["a\udcff"], "b": 1})).out == '{"paths":["a?"],"b":1}\n'
    assert cli.render(parsed("--human trial get"), Answer({"path": "a\udcff"})).out == "path: a\\udcff\n"


def test_quiet_keeps_status_and_hand() -> None:
    hand = (("CLAUDE_ENV_FILE", "export A=1\n"),)
    assert cli.render(parsed("-q trial get"), Answer({}, status=1, hand=hand)) == Reply(status=1, hand=hand)


def test_a_hook_exits_0_whatever_it_found() -> None:
    assert cli.render(parsed("hook session-start --format plain"), Answer({"lines": ["a"]}, status=1)) == Reply("a\n")


TABLES: list[tuple[Any, int, list[str]]] = [
    ({}, 80, ["(nothing)"]),
    ([], 80, ["(none)"]),
    ({"a": None, "long": True, "n": Decimal("1.10")}, 80, ["a:    -", "long: yes", "n:    1.10"]),
    ({"rows": []}, 80, ["rows: -"]),
    ({"rows": [{"a": 1}, {"b": "x"}]}, 80, ["rows:", "  a  b", "  1", "     x"]),
    ({"d": {"e": ["x", 2]}}, 80, ["d:", "  e: x, 2"]),
    ({"t": "x\ny\t\x1b[31m"}, 80, ["t: x y \\x1b[31m"]),
    ({"t": "x" * 197}, 200, ["t: " + "x" * 197]),
    ({"t": "x" * 50}, 20, ["t:", "  " + "x" * 50]),
    ({"t": "日本 " * 6}, 20, ["t: 日本 日本 日本", "   日本 日本 日本"]),
    ([1, "a"], 80, ["1", "a"]),
    ("x", 80, ["x"]),
]


@pytest.mark.parametrize(("value", "width", "expected"), TABLES)
def test_tables(value: Any, width: int, expected: list[str]) -> None:
    assert cli.draw(value, width).splitlines() == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
    max_leaves=10,
)


@given(json_values, st.integers(20, 120))
def test_a_table_is_printable_and_within_the_width(value: Any, width: int) -> None:
    for line in cli.draw(value, width).split("\n"):
        assert line.isprintable()
        # Each level of nesting may take the two columns of its indent beyond a very narrow terminal.
        assert len(line) <= max(width, 40) or len(line.split()) == 1


def test_what_says_nothing_to_a_person_is_left_out() -> None:
    result: dict[str, Any] = {
        "rows": [],
        "rev": None,
        "untrusted": ["a"],
        "problem": "",
        "kept": None,
        "d": {"e": []},
        "n": 0,
    }
    assert cli.render(parsed("--human trial get"), Answer(result)).out == "kept: -\nn:    0\n"
    assert cli.render(parsed("--human trial get"), Answer({"rows": []})).out == "done: yes\n"
    assert json.loads(cli.render(parsed("trial get"), Answer(result)).out) == result


def test_a_dry_run_says_so_first() -> None:
    line = "trial profile put --why user --data {} --dry-run"
    result = {"changed": ["a"], "dry_run": True, "would_change": ["x/a.json", "x/b.json"]}
    head = "dry run: nothing was written; would change: x/a.json, x/b.json\nit would answer:\n"
    assert cli.render(parsed(f"--human {line}"), Answer(result)).out == f"{head}  changed: a\n"
    assert json.loads(cli.render(parsed(line), Answer(result)).out) == result
    same = {"dry_run": True, "would_change": [], "rev": 3}
    out = cli.render(parsed(f"--human {line}"), Answer(same)).out
    assert out.startswith("dry run: nothing was written; no document would change\n")


def test_an_empty_document_on_a_terminal_is_said_in_words() -> None:
    def words(result: Any, width: int) -> str:
        return "nothing yet"

    row = replace(TRIAL.operations[3], text=lambda result: "", human=words)
    commands = Commands([replace(TRIAL, operations=(row,))])
    for caller, expected in ((CALLER, ""), (TERMINAL, "nothing yet\n")):
        done = commands.parse(["trial", "map"], "statectl", caller)
        assert isinstance(done, Parsed)
        assert cli.render(done, Answer({})).out == expected


WRITES = "trial profile put --why user --data {}"


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        (WRITES, Refused("no", where="x"), "x: no; nothing was written"),
        (WRITES, Refused("no", where="x", hint="do y; nothing was written"), "x: no; do y; nothing was written"),
        (WRITES, Usage("no", where="profile put"), "trial profile put: no"),
        (WRITES, Usage("no", where="trial profile put: --why"), "trial profile put: --why: no"),
        (WRITES, Unavailable("no"), "trial profile put: no"),
        ("trial get", Refused("no", where="x"), "x: no"),
        ("old add-one", Refused("no", where="x"), "x: no"),
    ],
)
def test_a_refused_write_ends_by_saying_that_nothing_was_written(line: str, error: StatedError, expected: str) -> None:
    assert cli.render_error(parsed(line), error).err == f"statectl: {expected}\n"


# Tables of operations -------------------------------------------------------------------------------------------------


def test_methods_are_the_table() -> None:
    found = cli.methods([TRIAL, OLD])
    assert found["trial.profile.put"] == (TRIAL, TRIAL.operations[1])
    assert found["old.add_one"] == (OLD, OLD.operations[1])
    assert found["daemon.status"][0].name == ""
    assert "trial.rpc" not in found


def test_openrpc_describes_every_method() -> None:
    document = COMMANDS.openrpc()
    rows = {row["name"]: row for row in document["methods"]}
    assert set(rows) == set(COMMANDS.methods)
    put = {param["name"]: param for param in rows["trial.profile.put"]["params"]}
    assert set(put) == {"site", "why", "data", "if_rev", "call", "dry_run"}
    assert (put["why"]["required"], put["if_rev"]["required"]) == (True, False)
    assert put["why"]["schema"]["enum"] == ["learned", "user"]
    json.dumps(document)


def test_view_defaults_are_those_of_a_pipe() -> None:
    assert View() == View(json=False, human=False, quiet=False, tty=False, width=80)
    assert Usage("x").status == 2
