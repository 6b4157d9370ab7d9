"""Every command of the table as separate processes, in both modes: a good call, a refused one and a usage error.

`ROWS` is the list; a command without its three rows fails `test_every_command_has_its_three_rows`. What each kind must
do:

    good      exit 0 (or the row's), the answer on standard output, nothing on standard error
    refused   exit 1, nothing on standard output, one line on standard error, and no byte of the home changed
    usage     exit 2, the same

A command that can refuse nothing says so by a `Never` with the reason.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pytest

from stated import domains
from stated.core import CORE
from tests.conftest import Home, Reply


class Call(NamedTuple):
    """A command line without `statectl`. `before` are commands that must have run; `holds` stands in what is printed;
    `local_status` is the exit status where it must differ because no daemon runs."""

    words: str
    holds: str = ""
    status: int = 0
    before: tuple[str, ...] = ()
    stdin: str | None = None
    form: Literal["json", "text"] = "json"
    local_status: int | None = None


@dataclass(frozen=True)
class Never:
    """Why a command has no such row."""

    reason: str


class Rows(NamedTuple):
    good: Call
    refused: Call | Never
    usage: Call | Never


PROFILE = """seal --site demo profile put --why discovery --data '{"timezone":"Europe/Oslo"}'"""
RUN = "seal --site demo run log --skill triage --calls 3 --budget 10 --verdict on_track"
RUN_START = "seal --site demo run start --skill monday-briefing"
FINDING = "--pattern leaky-campaign --subject summer-sale --impact 200 --currency EUR"
REC = (
    f"seal --site demo rec add --skill opportunity-scan {FINDING} --evidence '2,014 entrances' --action 'Fix the page' "
    "--metric CR --baseline 0.010 --target 0.022 --verify-in 28d --id page"
)
DUE = (
    """seal --site demo rec add --data '{"id":"cart","date":"2026-01-05","skill":"core","pattern":"dead-cart",'"""
    """'"subject":"es","evidence":"e","action":"a","impact_eur_month":100,"metric":"CR","baseline":0.010,"target":0.022,'"""
    """'"verify_on":"2026-02-02","status":"open"}'"""
)
MAP = "seal --site demo --skill property-explorer map put --data '| property | score |\n|---|---|\n| sku | 9 |'"
DAYS = ",".join(f'"{day}":2400' for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun"))
BASELINE = f"""seal --site demo baseline put --event deposit --mode C --data '{{"daily_median":{{{DAYS}}}}}'"""
READS_ONLY = Never("it reads and says what is there; nothing it could refuse")

# The first call of a home has revision 1.
FIRST = PROFILE + " --call first"
LATER = """seal --site demo profile put --why user --data '{"thresholds":{"min_entrances":500}}' --call later"""
DOCUMENT = ".seal-copilot/demo/profile.json"

ROWS: dict[str, Rows] = {
    # The core's own
    "version": Rows(Call("version", '"protocol"'), READS_ONLY, Call("version now")),
    "status": Rows(Call("status", '"queue"', local_status=3), READS_ONLY, Call("status --nonsense", "--nonsense")),
    "stop": Rows(Call("stop"), Never("ending is never refused"), Call("stop now")),
    "doctor": Rows(Call("doctor", '"findings"', before=(PROFILE,)), READS_ONLY, Call("doctor --nonsense")),
    "where": Rows(Call("where seal", "/.seal-copilot"), READS_ONLY, Call("where nowhere", "nowhere")),
    "roots list": Rows(Call("roots list", "/.seal-copilot", before=(PROFILE,)), READS_ONLY, Call("roots list all")),
    "roots forget": Rows(
        Call("roots forget .seal-copilot", before=(PROFILE,)),
        Call("roots forget /never/seen", before=(PROFILE,)),
        Call("roots forget"),
    ),
    "rpc": Rows(
        Call("rpc seal.profile.get site=demo", '"absent"'),
        Call("rpc seal.profile.unset site=demo field=site_id", "site_id", before=(PROFILE,)),
        Call("rpc no.such.method", "no.such.method"),
    ),
    # What happened, and taking it back
    "log": Rows(
        Call(f"log {DOCUMENT} --since 1h --origin call", '"created"', before=(PROFILE,)),
        Call("log .seal-copilot/demo/nothing.json", "no history", before=(PROFILE,)),
        Call("log --limit many", "--limit"),
    ),
    "show": Rows(
        Call(f"show {DOCUMENT}@1", '"timezone": "Europe/Oslo"', before=(FIRST, LATER), form="text"),
        Call(f"show {DOCUMENT}@0", "no revision 0", before=(FIRST,)),
        Call(f"show {DOCUMENT}", "PATH@REV", before=(FIRST,)),
    ),
    "diff": Rows(
        Call(f"diff {DOCUMENT}@1", '+    "min_entrances": 500', before=(FIRST, LATER), form="text"),
        Call(f"diff {DOCUMENT}@1..0", "no revision 0", before=(FIRST,)),
        Call(f"diff {DOCUMENT}@1..", "PATH@REV[..REV]", before=(FIRST,)),
    ),
    "blame": Rows(
        Call(f"blame {DOCUMENT}", '"later"', before=(FIRST, LATER)),
        Call("blame .seal-copilot", "folder", before=(PROFILE,)),
        Call("blame", "PATH"),
    ),
    "restore": Rows(
        Call(f"restore {DOCUMENT}@1", '"restored":1', before=(FIRST, LATER)),
        Call(f"restore {DOCUMENT}@1 --if-rev 1", "not at 1", before=(FIRST, LATER)),
        Call(f"restore {DOCUMENT}@last", "PATH@REV", before=(FIRST,)),
    ),
    "undo": Rows(
        Call("undo later", '"to":1', before=(FIRST, LATER)),
        Call("undo first", "changed since by seal.profile.put", before=(FIRST, LATER)),
        Call("undo", "CALL"),
    ),
    "purge": Rows(
        Call(f"purge {DOCUMENT}", '"revisions":2', before=(FIRST, LATER)),
        Call("purge /etc/passwd", "no history", before=(FIRST,)),
        Call(f"purge {DOCUMENT} --before yesterday", "--before", before=(FIRST,)),
    ),
    "help": Rows(Call("help seal profile put", "--why", form="text"), READS_ONLY, Call("help nowhere")),
    "hook session-start": Rows(
        Call("hook session-start --format plain", "State directory:", form="text"),
        Never("a hook always exits 0: a session's start must not fail"),
        Never("a hook always exits 0: a session's start must not fail"),
    ),
    # Seal Copilot
    "seal profile get": Rows(
        Call("seal --site demo profile get", '"Europe/Oslo"', before=(PROFILE,)),
        Call("seal --site ../demo profile get", before=(PROFILE,)),
        Call("seal --site demo profile get --needs timezone", "--need"),
    ),
    "seal profile put": Rows(
        Call(PROFILE, '"rev"'),
        Call("""seal --site demo profile put --why user --data '{"timezone":7}'""", "timezone", before=(PROFILE,)),
        Call("""seal --site demo profile put --why because --data '{}'""", "--why", before=(PROFILE,)),
    ),
    "seal profile unset": Rows(
        Call("seal --site demo profile unset timezone", '"timezone"', before=(PROFILE,)),
        Call("seal --site demo profile unset site_id", "site_id", before=(PROFILE,)),
        Call("seal --site demo profile unset", "FIELD", before=(PROFILE,)),
    ),
    "seal offer": Rows(
        Call("seal --site demo offer monday_briefing", '"first"', before=(PROFILE,)),
        Call("seal --site demo offer 'two words'", before=(PROFILE,)),
        Call("seal --site demo offer", "SCHEDULE", before=(PROFILE,)),
    ),
    "seal run log": Rows(
        Call(RUN, '"on_track"', before=(RUN,)),
        Call(RUN.replace("on_track", "'looking good'"), "verdict", before=(RUN,)),
        Call(RUN.replace("--calls 3", "--calls three"), "--calls", before=(RUN,)),
    ),
    "seal run last": Rows(
        Call("seal --site demo run last", '"on_track"', before=(RUN,)),
        Call("seal --site ../demo run last", before=(RUN,)),
        Call("seal --site demo run last --limit many", "--limit", before=(RUN,)),
    ),
    "seal run start": Rows(
        Call(f"{RUN_START} --scheduled", '"overlap"', before=(RUN_START,)),
        Call("seal --site demo run start", "skill", before=(RUN,)),
        Call(f"{RUN_START} --lease soon", "--lease", before=(RUN,)),
    ),
    "seal run count": Rows(
        Call("seal --site demo run count --tool list_sites", '"left":14', before=(RUN_START,)),
        Call("seal --site demo run count --run r0", "not known", before=(RUN_START,)),
        Call("seal --site demo run count --n 0", "--n", before=(RUN_START,)),
    ),
    "seal run finish": Rows(
        Call("seal --site demo run finish --verdict watch --calls 3", '"watch"', before=(PROFILE, RUN_START)),
        Call("seal --site demo run finish --verdict fine --calls 3", "verdict", before=(PROFILE, RUN_START)),
        Call("seal --site demo run finish --calls 3", "--verdict", before=(PROFILE, RUN_START)),
    ),
    "seal run stats": Rows(
        Call("seal --site demo run stats --all-sites", '"over_share"', before=(RUN,)),
        Call("seal --site ../demo run stats", before=(RUN,)),
        Call("seal --site demo run stats --since monday", "--since", before=(RUN,)),
    ),
    "seal rec due": Rows(
        Call("seal --site demo rec due --limit 2", '"cart"', before=(DUE,)),
        Call("seal --site ../demo rec due", before=(DUE,)),
        Call("seal --site demo rec due --limit 0", "--limit", before=(DUE,)),
    ),
    "seal rec list": Rows(
        Call("seal --site demo rec list --status open", '"page"', before=(REC,)),
        Call("seal --site ../demo rec list", before=(REC,)),
        Call("seal --site demo rec list --status closed", "--status", before=(REC,)),
    ),
    "seal rec record": Rows(
        Call("seal --site demo rec record", '"counts"', before=(REC,)),
        Call("seal --site ../demo rec record", before=(REC,)),
        Call("seal --site demo rec record all", before=(REC,)),
    ),
    "seal rec check": Rows(
        Call(f"seal --site demo rec check {FINDING}", '"suppressed"', before=(REC,)),
        Call(f"seal --site demo rec check {FINDING.replace('EUR', 'euro')}", "currency", before=(REC,)),
        Call("seal --site demo rec check --pattern leaky-campaign", "--subject", before=(REC,)),
    ),
    "seal rec add": Rows(
        Call(REC, '"created"', before=(DUE,)),
        Call(REC.replace("--target 0.022", "--target 0.0100"), "target", before=(DUE,)),
        Call(REC.replace("--target 0.022", "--target more"), "--target", before=(DUE,)),
    ),
    "seal rec settle": Rows(
        Call("seal --site demo rec settle cart --measured 0.0140", '"progress":0.3333', before=(DUE,)),
        Call("seal --site demo rec settle card --measured 0.0140", "no entry", before=(DUE,)),
        Call("seal --site demo rec settle cart", "--measured", before=(DUE,)),
    ),
    "seal rec escalate": Rows(
        Call("seal --site demo rec escalate page --impact 300", '"escalated_on"', before=(REC,)),
        Call("seal --site demo rec escalate page --impact 299", "half", before=(REC,)),
        Call("seal --site demo rec escalate page", "--impact", before=(REC,)),
    ),
    "seal rec discard": Rows(
        Call("seal --site demo rec discard page --why 'it has ended'", '"until"', before=(REC,)),
        Call("seal --site demo rec discard page --why 'told by ana@example.com'", "notes", before=(REC,)),
        Call("seal --site demo rec discard page", "--why", before=(REC,)),
    ),
    "seal map get": Rows(
        Call("seal --site demo map get", "| sku | 9 |", before=(MAP,), form="text"),
        Call("seal --site ../demo map get", before=(MAP,)),
        Call("seal --site demo map get all", before=(MAP,)),
    ),
    "seal map put": Rows(
        Call(f"{MAP} --if-rev absent", '"fresh"', before=(RUN,)),
        Call(MAP, "--if-rev", before=(MAP,)),
        Call("seal --site demo map put", "--data", before=(MAP,)),
    ),
    "seal baseline get": Rows(
        Call("seal --site demo baseline get --expect-now", '"expected"', before=(PROFILE, BASELINE)),
        Call("seal --site ../demo baseline get", before=(BASELINE,)),
        Call("seal --site demo baseline get --now", "--now", before=(BASELINE,)),
    ),
    "seal baseline put": Rows(
        Call(BASELINE, '"diff"', before=(BASELINE,)),
        Call(BASELINE.replace("daily_median", "daily"), "daily_median", before=(BASELINE,)),
        Call(BASELINE.replace("--mode C", "--mode D"), "--mode", before=(BASELINE,)),
    ),
    "seal watch observe": Rows(
        Call("seal --site demo watch observe --actual 1000000", '"watch"', before=(PROFILE, BASELINE)),
        Call("seal --site demo watch observe --actual 1 --last-event noon", "--last-event", before=(PROFILE, BASELINE)),
        Call("seal --site demo watch observe --actual some", "--actual", before=(PROFILE, BASELINE)),
    ),
}


def commands() -> set[str]:
    """Every row of the table that is typed; the others are methods only."""
    return {
        f"{domain.name} {operation.name}".strip()
        for domain in (CORE, *domains.load())
        for operation in domain.operations
        if operation.name
    }


def test_every_command_has_its_three_rows() -> None:
    assert set(ROWS) == commands()


def run(home: Home, call: Call) -> Reply:
    return home.statectl(*shlex.split(call.words), stdin=call.stdin)


def prepare(home: Home, call: Call) -> None:
    for words in call.before:
        assert home.statectl(*shlex.split(words)).status == 0


@pytest.mark.parametrize("command", ROWS)
def test_a_good_call_answers_on_standard_output(either: Home, command: str) -> None:
    call = ROWS[command].good
    prepare(either, call)
    reply = run(either, call)

    if either.mode == "local" and call.local_status is not None:
        assert (reply.status, reply.out, reply.err.count("\n")) == (call.local_status, "", 1)
        return
    assert (reply.status, reply.err) == (call.status, "")
    assert call.holds in reply.out
    if call.form == "json":
        assert isinstance(json.loads(reply.out), dict)
        assert reply.out.count("\n") == 1
    either.ended = command == "stop"


def cases(kind: Literal["refused", "usage"]) -> list[str]:
    return [command for command, rows in ROWS.items() if isinstance(getattr(rows, kind), Call)]


@pytest.mark.parametrize("command", cases("refused"))
def test_a_refused_call_says_so_in_one_line_and_changes_no_byte(either: Home, command: str) -> None:
    fails(either, ROWS[command].refused, 1)


@pytest.mark.parametrize("command", cases("usage"))
def test_a_usage_error_says_so_in_one_line_and_changes_no_byte(either: Home, command: str) -> None:
    fails(either, ROWS[command].usage, 2)


def fails(home: Home, call: Call | Never, status: int) -> None:
    assert isinstance(call, Call)
    prepare(home, call)
    before = home.listing(times=True)
    reply = run(home, call)

    assert (reply.status, reply.out) == (status, ""), reply
    assert reply.err.startswith("statectl: ")
    assert reply.err.count("\n") == 1
    assert reply.err.endswith("\n")
    assert call.holds in reply.err
    assert home.listing(times=True) == before


def test_a_command_that_does_not_exist_is_a_usage_error_at_every_level(either: Home) -> None:
    for words in ("nonsense", "seal nonsense", "seal profile nonsense", "--nonsense", "seal --nonsense profile get"):
        fails(either, Call(words), 2)
