"""A write changes the bytes of what it changes, and no other: however odd the file looks that somebody made.

The files here are what people and programs really leave: other indentation, CRLF, a BOM, no last newline, numbers that
no binary float holds, keys that nobody knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import Home

TODAY = "{today}"

PROFILE = """{
  "site_id": "demo",
  "account_id": "refused",
  "site_name": "example.com",
  "connector": "remote",
  "timezone": "Europe/Madrid",
  "currency": "EUR",
  "vertical": "ecommerce",
  "events": {
    "view": "product_view",
    "add_to_cart": "add_to_cart",
    "checkout": "start_checkout",
    "purchase": "purchase"
  },
  "product_identifier": { "key": "sku", "table": "conversion_items" },
  "agent_analytics_enabled": false,
  "first_data_date": "2025-11-02",
  "discovery_cached_at": "{today}",
  "scheduling_offered": { "monday_briefing": true, "cart_watchdog": false },
  "thresholds": {"anomaly_pct": 1.10, "min_entrances": 5e2, "min_conversions": 30.000},
  "from_a_newer_release": 123456789012345678901234567890,
  "also_unknown": {"deep": [1.10, -0.0, 1E400, 0.1000000000000000055511151231257827, [], {}], "é": "caf\\u00e9 \\/ 🛶"},
  "extra": {"berths": 12 , "ratio":1.10,"serial":  999999999999999999999999999999}
}
"""

FORMS: dict[str, Callable[[str], bytes]] = {
    "as it is": lambda text: text.encode(),
    "four spaces, CRLF, a BOM": lambda text: b"\xef\xbb\xbf" + wide(text).replace("\n", "\r\n").encode(),
    "tabs": lambda text: wide(text, "\t").encode(),
    "one line": lambda text: " ".join(text.split("\n")).encode(),
    "no last newline": lambda text: text.rstrip("\n").encode(),
    "blank lines around": lambda text: f"\n\n{text}\n\n".encode(),
    "no spaces at all": lambda text: json.dumps(json.loads(text, parse_float=float), separators=(",", ":")).encode(),
}


def wide(text: str, unit: str = "    ") -> str:
    """The same text with another indentation."""
    lines = text.split("\n")
    return "\n".join(unit * ((len(line) - len(line.lstrip(" "))) // 2) + line.lstrip(" ") for line in lines)


def put_file(home: Home, name: str, raw: bytes) -> Path:
    path = home.path / ".seal-copilot" / "demo" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def profile(form: str) -> bytes:
    text = PROFILE.replace(TODAY, datetime.now(UTC).date().isoformat())
    if form == "no spaces at all":
        text = text.replace("1E400", "1")  # Python cannot write it
    return FORMS[form](text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("why", ["user", "learned"])
def test_an_update_changes_the_bytes_of_one_member(home: Home, form: str, why: str) -> None:
    raw = profile(form)
    path = put_file(home, "profile.json", raw)
    path.chmod(0o640)
    reply = home.statectl("seal", "profile", "put", "--why", why, "--data", '{"timezone":"Atlantic/Reykjavik"}').ok()

    assert reply["changed"] == ["timezone"]
    assert raw.count(b"Europe/Madrid") == 1
    assert path.read_bytes() == raw.replace(b"Europe/Madrid", b"Atlantic/Reykjavik")
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_worst_file_in_both_modes(either: Home) -> None:
    raw = profile("four spaces, CRLF, a BOM")
    path = put_file(either, "profile.json", raw)
    there = either.statectl("seal", "profile", "put", "--why", "user", "--data", '{"timezone":"Europe/Oslo"}').ok()

    assert path.read_bytes() == raw.replace(b"Europe/Madrid", b"Europe/Oslo")
    assert '"from_a_newer_release":123456789012345678901234567890' in either.statectl("seal", "profile", "get").out
    back = json.dumps({"timezone": "Europe/Madrid"})
    either.statectl("seal", "profile", "put", "--why", "user", "--data", back, "--if-rev", str(there["rev"])).ok()
    assert path.read_bytes() == raw


def test_numbers_come_and_go_as_they_are_written(home: Home) -> None:
    data = '{"thresholds":{"a":1.10,"b":123456789012345678901234567890},"extra":{"a":1E400,"b":-0.0}}'
    reply = home.statectl("seal", "--site", "demo", "profile", "put", "--why", "user", "--data", data)
    raw = (home.path / ".seal-copilot" / "demo" / "profile.json").read_text()

    assert reply.status == 0, reply
    for number in ("1.10", "123456789012345678901234567890", "-0.0"):
        assert f": {number}" in raw
        assert f":{number}" in home.statectl("seal", "profile", "get").out
    assert "400" in raw


MEMBERS = [
    (("offer", "cart_watchdog"), b'"cart_watchdog": false', b'"cart_watchdog": true'),
    (
        ("profile", "put", "--why", "user", "--data", '{"events":{"view":"boat_view"}}'),
        b'"product_view"',
        b'"boat_view"',
    ),
    (("profile", "unset", "extra.berths"), b'"berths": 12 , ', b""),
    (
        ("profile", "put", "--why", "user", "--data", '{"thresholds":{"anomaly_pct":2.50}}'),
        b'pct": 1.10',
        b'pct": 2.50',
    ),
]


@pytest.mark.parametrize(("words", "before", "after"), MEMBERS)
def test_a_member_inside_a_member(home: Home, words: tuple[str, ...], before: bytes, after: bytes) -> None:
    raw = profile("four spaces, CRLF, a BOM")
    path = put_file(home, "profile.json", raw)
    assert home.statectl("seal", *words).status == 0

    assert raw.count(before) == 1
    assert path.read_bytes() == raw.replace(before, after)


def test_a_write_of_what_is_there_already_writes_nothing(either: Home) -> None:
    raw = profile("four spaces, CRLF, a BOM")
    path = put_file(either, "profile.json", raw)
    inode = path.stat()
    for data in ('{"timezone":"Europe/Madrid"}', '{"thresholds":{"anomaly_pct":1.1}}', "{}"):
        assert either.statectl("seal", "profile", "put", "--why", "user", "--data", data).ok()["changed"] == []
    assert path.read_bytes() == raw
    assert path.stat().st_ino == inode.st_ino
    assert path.stat().st_mtime_ns == inode.st_mtime_ns


LINE = (
    b'{"ts":"2026-09-07T08:00:12Z","skill":"monday-briefing","calls":13,"budget":15,"verdict":"watch",'
    b'"scheduled":true,"notes":"a"}'
)
LOGS = {
    "CRLF": LINE + b"\r\n" + LINE + b"\r\n",
    "a BOM": b"\xef\xbb\xbf" + LINE + b"\n",
    "no last newline": LINE + b"\n" + LINE,
    "odd spacing": LINE.replace(b'":', b'" : ') + b"  \n\n\n",
    "a number of 30 digits": LINE.replace(b"13", b"1" * 30) + b"\n",
}


@pytest.mark.parametrize("form", LOGS)
def test_a_log_keeps_every_byte_and_gets_a_line(either: Home, form: str) -> None:
    path = put_file(either, "runs.jsonl", LOGS[form])
    inode = path.stat().st_ino
    words = ("run", "log", "--skill", "triage", "--calls", "1", "--budget", "9", "--verdict", "act")
    stored = either.statectl("seal", *words).ok()["line"]
    raw = path.read_bytes()

    assert raw.startswith(LOGS[form])
    rest = raw[len(LOGS[form]) :]
    assert json.loads(rest) == stored
    assert rest.startswith(b"{") is LOGS[form].endswith(b"\n"), "never glued to another line"
    assert rest.endswith(b"}\n")
    assert path.stat().st_ino == inode, "appended, not replaced: somebody may be following it"
