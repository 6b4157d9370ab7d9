"""One message in, its answer out: every rule of `rpc.py`, against a small service."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stated import config, log
from stated.call import Answer, Call, Service
from stated.cli import Commands
from stated.domain import Caller, Domain, Kind, Location, Operation
from stated.errors import LineTooLong, QueueFull, Refused, Stopping
from stated.rpc import Rpc, refusal, request_id


class Words(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    word: Annotated[str, msgspec.Meta(extra={"positional": True})] = ""
    data: Any = None


def _locate(caller: Caller, announced: str | None) -> Location:
    return Location("/nowhere", "default")


def _operation(name: str, kind: Kind) -> Operation:
    return Operation(name=name, kind=kind, summary=f"{name}.", params=Words, run=lambda *_: None)  # type: ignore[arg-type]


DEMO = Domain(
    name="demo",
    title="Demo",
    summary="Demo.",
    operations=(_operation("get", Kind.READER), _operation("put", Kind.WRITER), _operation("note", Kind.MEMORY)),
    locate=_locate,
)


class FakeService:
    """Remembers the order of calls; a write's answer waits until the test lets it go."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.hold: asyncio.Event | None = None
        self.fail: Exception | None = None
        self.result: Any = None
        self.stopped = False

    async def submit(self, call: Call) -> Answer:
        self.calls.append(call)
        if self.hold is not None and call.operation.kind is not Kind.READER:
            await self.hold.wait()
        if self.fail is not None:
            raise self.fail
        result = {"word": call.params.word} if self.result is None else self.result  # type: ignore[attr-defined]
        return Answer(result, rev=7 if call.operation.kind is Kind.WRITER else None)

    async def status(self) -> dict[str, Any]:
        return {"daemon": {"pid": 1}}

    async def where(self, domain: Domain, caller: Caller) -> dict[str, Any]:
        return {"root": "/nowhere"}

    async def roots(self) -> list[dict[str, Any]]:
        return []

    async def forget(self, root: str) -> dict[str, Any]:
        return {}

    async def release(self, root: str) -> dict[str, Any]:
        return {"released": root}

    async def doctor(self, targets: Sequence[str], caller: Caller) -> list[dict[str, Any]]:
        return []

    async def announce(self, caller: Caller, session: str, only_lines: bool = False) -> dict[str, Any]:
        return {"lines": [], "session": session}

    def request_stop(self) -> None:
        self.stopped = True


class Desk:
    """An `Rpc` and what it sent."""

    def __init__(self, home: str = "/tmp") -> None:
        self.service = FakeService()
        self.rpc = Rpc(cast(Service, self.service), Commands([DEMO]), home)
        self.sent: list[bytes] = []

    def ask(self, message: Any) -> list[Any]:
        """What one message (a value, or a line as it is) got, frame by frame."""
        asyncio.run(self.rpc.handle(line_of(message), self.sent.append))
        assert all(frame.endswith(b"\n") and frame.count(b"\n") == 1 for frame in self.sent)
        frames = [json.loads(frame, parse_float=Decimal) for frame in self.sent]
        self.sent.clear()
        return frames

    def one(self, message: Any) -> Any:
        [frame] = self.ask(message)
        return frame


def line_of(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def call(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def cli(*argv: str, **more: Any) -> dict[str, Any]:
    return call("cli", argv=list(argv), **{"home": "/tmp", "call": "c1", **more})


@pytest.fixture
def desk() -> Desk:
    return Desk()


# What is not a request ------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[Any, int, Any]] = {
    "not JSON": (b"{", -32700, None),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    "NaN": (b'{"jsonrpc":"2.0","id":NaN,"method":"rpc.hello"}', -32700, None),
    "a lone surrogate": (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32700, None),
    "a number": (5, -32600, None),
    "null": (None, -32600, None),
    "an empty object": ({}, -32600, None),
    "no version, with an id": ({"id": 4, "method": "rpc.hello"}, -32600, 4),
    "another version": ({"jsonrpc": "1.0", "id": "x", "method": "rpc.hello"}, -32600, "x"),
    "a method that is no string": ({"jsonrpc": "2.0", "id": 5, "method": 1}, -32600, 5),
    "an id that is null": ({"jsonrpc": "2.0", "id": None, "method": "rpc.hello"}, -32600, None),
    "an id that is true": ({"jsonrpc": "2.0", "id": True, "method": "rpc.hello"}, -32600, None),
    "an id that is a fraction": ({"jsonrpc": "2.0", "id": 1.5, "method": "rpc.hello"}, -32600, None),
    "params that are null": ({"jsonrpc": "2.0", "id": 6, "method": "rpc.hello", "params": None}, -32600, 6),
    "params by position": ({"jsonrpc": "2.0", "id": 7, "method": "demo.get", "params": ["x"]}, -32602, 7),
    "an unknown method": (call("demo.gett", 8), -32601, 8),
    "an unknown param": (call("demo.get", 9, wort="x"), -32602, 9),
    "a param of another type": (call("demo.get", 10, word=1), -32602, 10),
    "an empty batch": ([], -32600, None),
    "a batch that is too long": ([1] * (config.MAX_BATCH + 1), -32022, None),
    "too deep": (b'{"jsonrpc":"2.0","id":11,"method":"x","params":{"a":' + b"[" * 64 + b"]" * 64 + b"}}", -32021, 11),
    "far too deep": (b"[" * 5000 + b"]" * 5000, -32700, None),
    "a number nobody can read": (b'{"jsonrpc":"2.0","id":1,"method":"demo.get","params":{"data":1e400}}', -32700, None),
    "meta that is wrong": (call("demo.get", 12, _meta={"home": 1}), -32602, 12),
    "meta that is unknown": (call("demo.get", 13, _meta={"hom": "x"}), -32602, 13),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_gets_one_error_under_its_id(desk: Desk, case: str) -> None:
    message, code, id = BAD[case]

    answer = desk.one(message)

    assert (answer["error"]["code"], answer["id"], answer["jsonrpc"]) == (code, id, "2.0")
    assert answer["error"]["message"]
    assert desk.service.calls == []


def test_an_error_says_what_was_probably_meant(desk: Desk) -> None:
    assert desk.one(call("demo.gett"))["error"]["data"]["hint"] == "did you mean demo.get?"
    assert "word" in desk.one(call("demo.get", wrod="x"))["error"]["data"]["hint"]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(ANY_JSON)
def test_no_message_makes_it_fail(message: Any) -> None:
    desk = Desk()

    for frame in desk.ask(json.dumps(message).encode()):
        assert all("error" in part for part in (frame if isinstance(frame, list) else [frame]))


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(line: bytes) -> None:
    for frame in Desk().ask(line.replace(b"\n", b"")):
        assert "error" in frame or isinstance(frame, list)


def test_the_id_of_a_message_that_is_not_read_is_found_where_it_surely_is_one() -> None:
    def id_of(head: bytes) -> Any:
        return json.loads(refusal(LineTooLong("long"), head))["id"]

    assert id_of(b'{"jsonrpc":"2.0","id":12,"method":"cli","params":{"stdin":"') == 12
    assert id_of(b' { "id" : "a b" , "jsonrpc"') == "a b"
    assert id_of(b'{"params":{"id":12,') is None
    assert id_of(b'{"jsonrpc":"2.0","id":{"id":12,') is None
    assert request_id(b'{"id":3}') == 3
    assert request_id(b"{") is None


# Methods --------------------------------------------------------------------------------------------------------------


def test_hello_says_version_protocol_and_limits(desk: Desk) -> None:
    result = desk.one(call("rpc.hello"))["result"]

    assert result["protocol"] == 1
    assert result["limits"]["line"] == config.MAX_LINE


def test_discover_describes_every_method(desk: Desk) -> None:
    document = desk.one(call("rpc.discover"))["result"]

    names = {row["name"] for row in document["methods"]}
    assert document["openrpc"] == "1.3.2"
    assert {"demo.get", "demo.put", "demo.note", "rpc.hello", "daemon.status"} <= names


def test_a_typed_call_reaches_the_service(desk: Desk) -> None:
    answer = desk.one(call("demo.put", "id-1", word="x", _meta={"cwd": "/w", "env": {"TZ": "UTC"}, "call": "k1"}))

    [done] = desk.service.calls
    assert answer == {"jsonrpc": "2.0", "id": "id-1", "result": {"word": "x", "rev": 7}}
    assert (done.id, done.caller.cwd, done.caller.env, done.caller.home) == ("k1", "/w", {"TZ": "UTC"}, "/tmp")


def test_a_writer_takes_its_controls_as_params_or_in_meta(desk: Desk) -> None:
    desk.one(call("demo.put", if_rev=3, call="k2", dry_run=True))
    desk.one(call("demo.put", _meta={"if_rev": "absent", "call": "k3", "dry_run": True}))
    desk.one(call("demo.put"))

    first, second, third = desk.service.calls
    assert (first.if_rev, first.id, first.dry_run) == (3, "k2", True)
    assert (second.if_rev, second.id, second.dry_run) == ("absent", "k3", True)
    assert third.id
    assert third.if_rev is None


def test_numbers_come_and_go_as_they_are_written(desk: Desk) -> None:
    desk.service.result = {"big": 10**30 + 1, "price": Decimal("1.10")}
    data = b'{"n":123456789012345678901234567890,"d":1.10}'
    line = b'{"jsonrpc":"2.0","id":1,"method":"demo.put","params":{"data":' + data + b"}}"

    asyncio.run(desk.rpc.handle(line, desk.sent.append))

    got = desk.service.calls[0].params.data  # type: ignore[attr-defined]
    assert (got["n"], str(got["d"])) == (123456789012345678901234567890, "1.10")
    assert b'"big":1000000000000000000000000000001,"price":1.10' in desk.sent[0]


def test_a_refusal_keeps_its_parts(desk: Desk) -> None:
    desk.service.fail = Refused("no", where="demo/x.json", hint="try y", problems=[{"field": "a", "problem": "b"}])

    error = desk.one(call("demo.put"))["error"]

    problems = [{"field": "a", "problem": "b"}]
    data = {"kind": "refused", "where": "demo/x.json", "hint": "try y", "problems": problems}
    assert error == {"code": -32001, "message": "no", "data": data}


@pytest.mark.parametrize("message", [call("demo.put"), cli("demo", "put")], ids=["typed", "cli"])
def test_what_went_wrong_inside_is_logged_and_not_described(desk: Desk, message: Any, tmp_path: Path) -> None:
    desk.service.fail = ZeroDivisionError("a secret")
    with (tmp_path / "log").open("wb") as file:
        log.set_up("info", "json", file.fileno())
        try:
            frames = desk.ask(message)
        finally:
            log.silence()

    shown = json.dumps(frames)
    logged = json.loads((tmp_path / "log").read_text())
    assert "secret" not in shown
    assert logged["number"] in shown
    assert logged["exception"] == "ZeroDivisionError"


def test_a_file_name_that_is_not_utf8_does_not_lose_the_answer(desk: Desk) -> None:
    desk.service.result = {"path": "a\udcffb", "list": ["\udcff"]}

    assert desk.one(call("demo.get"))["result"] == {"path": "a?b", "list": ["?"]}
    assert json.loads(desk.one(cli("demo", "get"))["result"]["out"])["path"] == "a?b"


def test_a_call_of_another_home_is_refused(desk: Desk, tmp_path: Path) -> None:
    assert desk.one(cli("demo", "get", home=str(tmp_path)))["error"]["code"] == -32013
    assert desk.one(call("demo.get", _meta={"home": str(tmp_path)}))["error"]["code"] == -32013
    assert desk.one(cli("demo", "get", home="/tmp/../tmp/"))["result"]["status"] == 0
    assert desk.one(cli("demo", "get", home="tmp"))["error"]["code"] == -32013
    assert len(desk.service.calls) == 1


def test_stop_and_release(desk: Desk) -> None:
    assert desk.one(call("daemon.stop"))["result"] == {"stopping": True}
    assert desk.service.stopped
    assert desk.one(call("daemon.release", root="/r"))["result"] == {"released": "/r"}
    assert desk.one(call("daemon.release", rot="/r"))["error"]["code"] == -32602


def test_a_deadline_answers_and_the_write_goes_on(desk: Desk) -> None:
    async def main() -> None:
        desk.service.hold = asyncio.Event()
        message = call("demo.put", word="x", _meta={"call": "k9", "deadline": 0.01})
        await desk.rpc.handle(line_of(message), desk.sent.append)
        desk.service.hold.set()

    asyncio.run(main())

    error = json.loads(desk.sent[0])["error"]
    assert error["code"] == -32011
    assert "k9" in error["data"]["hint"]


# The client's method --------------------------------------------------------------------------------------------------


def test_a_read_is_one_frame_that_begins_as_the_client_knows_it(desk: Desk) -> None:
    asyncio.run(desk.rpc.handle(line_of(cli("demo", "get", "ä")), desk.sent.append))

    [frame] = desk.sent
    start = b'{"jsonrpc":"2.0","id":1,"result":{"status":0,"hand":[],"err":"","out":"'
    assert frame.startswith(start)
    assert frame.endswith(b'"}}\n')
    assert json.loads(frame)["result"]["out"] == '{"word":"ä"}\n'


@pytest.mark.parametrize("operation", ["put", "note"])
def test_a_write_is_announced_before_it_happens(desk: Desk, operation: str) -> None:
    async def main() -> list[bytes]:
        desk.service.hold = asyncio.Event()
        task = asyncio.create_task(desk.rpc.handle(line_of(cli("demo", operation, "x")), desk.sent.append))
        while not desk.service.calls:  # noqa: ASYNC110
            await asyncio.sleep(0)  # the poll of this wait
        before = list(desk.sent)
        desk.service.hold.set()
        await task
        return before

    before = asyncio.run(main())

    assert before == [b'{"jsonrpc":"2.0","method":"cli.begin","params":{"kind":"write"}}\n']
    assert json.loads(desk.sent[1])["result"]["status"] == 0
    assert desk.service.calls[0].id == "c1"


def test_a_usage_error_is_a_reply_like_any_other(desk: Desk) -> None:
    result = desk.one(cli("demo", "gte"))["result"]

    assert result["status"] == 2
    assert result["err"].startswith("statectl: ")
    assert result["out"] == ""


def test_a_daemon_that_stops_sends_the_client_to_the_next(desk: Desk) -> None:
    desk.service.fail = Stopping("stopping")

    assert desk.ask(cli("demo", "put"))[-1]["error"]["code"] == Stopping.code


def test_a_full_queue_is_a_reply(desk: Desk) -> None:
    desk.service.fail = QueueFull("too many calls wait", hint="try again")

    result = desk.ask(cli("demo", "put"))[-1]["result"]

    assert (result["status"], result["err"]) == (3, "statectl: demo put: too many calls wait; try again\n")


# Notifications and batches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["demo.put", "demo.get", "cli", "daemon.stop", "no.such"])
def test_a_notification_does_nothing_and_gets_nothing(desk: Desk, method: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        log.set_up("info", "json", file.fileno())
        try:
            frames = desk.ask({"jsonrpc": "2.0", "method": method, "params": {"word": "x"}})
        finally:
            log.silence()

    assert frames == []
    assert desk.service.calls == []
    assert not desk.service.stopped
    refused = "refused" in (tmp_path / "log").read_text()
    assert refused == (method in ("demo.put", "cli", "daemon.stop"))


def test_a_batch_keeps_its_order_and_answers_every_entry(desk: Desk) -> None:
    batch = [
        call("demo.put", 1, word="a"),
        call("demo.put", 2, word="b"),
        5,
        call("demo.get", 3, word="c"),
        {"jsonrpc": "2.0", "method": "demo.put", "params": {"word": "never"}},
        call("demo.put", 2, word="d"),
        call("no.such", "x"),
        cli("demo", "get", "e"),
    ]

    answers = desk.one(batch)

    assert [answer["id"] for answer in answers] == [1, 2, None, 3, 2, "x", 1]
    assert [done.params.word for done in desk.service.calls] == ["a", "b", "c", "d", "e"]  # type: ignore[attr-defined]
    assert answers[2]["error"]["code"] == -32600


def test_writers_that_follow_each_other_wait_together_and_a_reader_waits_for_them(desk: Desk) -> None:
    async def main() -> list[str]:
        desk.service.hold = asyncio.Event()
        batch = [call("demo.put", 1, word="a"), call("demo.put", 2, word="b"), call("demo.get", 3, word="c")]
        task = asyncio.create_task(desk.rpc.handle(line_of(batch), desk.sent.append))
        while len(desk.service.calls) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)  # the poll of this wait
        for _ in range(20):
            await asyncio.sleep(0)  # the poll of this wait: for the read that must not come
        seen = [done.params.word for done in desk.service.calls]  # type: ignore[attr-defined]
        desk.service.hold.set()
        await task
        return seen

    assert asyncio.run(main()) == ["a", "b"]
    assert [done.params.word for done in desk.service.calls] == ["a", "b", "c"]  # type: ignore[attr-defined]


def test_a_batch_of_notifications_gets_nothing(desk: Desk) -> None:
    assert desk.ask([{"jsonrpc": "2.0", "method": "demo.get"}] * 2) == []


def test_messages_reach_the_service_in_the_order_of_their_arrival(desk: Desk) -> None:
    words = [str(number) for number in range(200)]

    async def main() -> None:
        messages = [cli("demo", "put", word) if int(word) % 3 == 0 else call("demo.put", word=word) for word in words]
        tasks = [asyncio.create_task(desk.rpc.handle(line_of(one), desk.sent.append)) for one in messages]
        await asyncio.gather(*tasks)

    asyncio.run(main())

    assert [done.params.word for done in desk.service.calls] == words  # type: ignore[attr-defined]


def test_two_methods_of_one_name_crash_at_start() -> None:
    operation = dataclasses.replace(_operation("a", Kind.READER), method="cli")
    taken = dataclasses.replace(DEMO, name="x", operations=(operation,))

    with pytest.raises(ValueError, match="cli"):
        Rpc(cast(Service, FakeService()), Commands([taken]), "/tmp")
