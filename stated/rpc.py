"""One JSON-RPC message in, its answer out. No socket here; the only module that knows `jsonrpcserver`.

What may be relied on:

- `Rpc.handle` never raises for anything a message holds, and answers under the id whenever one can be read.
- Messages that are handed over one after the other reach the service in that order; only answers may overtake.
- A batch keeps its order, and every entry with an id gets its one answer. Nothing is ever done for a notification: a
  writer's is refused in the log, as nobody could be told.
- What went wrong inside is logged under a number and not described to the peer.
- Numbers arrive and leave as they are written (integers of any size, decimals).

The library dispatches one request at a time, already parsed and validated: its own validator costs more than all the
rest, its batches have no order, its errors lose the id, and each of its entrances makes a task.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import secrets
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
import orjson

from stated import config
from stated.call import Answer, Call, Service
from stated.cli import Commands, Parsed, Reply, render, render_error
from stated.documents import json_text
from stated.domain import Caller, Context, Domain, Kind, Operation
from stated.errors import (
    BatchTooLong,
    DeadlineExceeded,
    Internal,
    StatedError,
    Stopping,
    TooDeep,
    Unavailable,
    UnknownOutcome,
    Usage,
)
from stated.log import get_logger
from stated.params import has_control, meant, request

with warnings.catch_warnings():
    # It reads its own schema in a way that a later Python will drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jsonrpcserver import Error, Result, Success
    from jsonrpcserver.async_dispatcher import dispatch_request
    from jsonrpcserver.request import Request
    from jsonrpcserver.sentinels import NODATA

__all__ = ["Releases", "Rpc", "Send"]

Send = Callable[[bytes], None]
"""Puts a whole frame, with its line ending, on the way to the peer. Never waits and never fails."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

BEGIN: Final = b'{"jsonrpc":"2.0","method":"cli.begin","params":{"kind":"write"}}\n'

_log = get_logger("stated.rpc")

_EXACT = re.compile(rb"\d{16}|\d[.eE]")
"""Numbers that a binary float may not give back as they are written."""

_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")\s*,')
"""The id of a message that is too long to be read: only where it stands first, so that it is surely the request's."""

_T = TypeVar("_T")

_exact = msgspec.json.Decoder(float_hook=Decimal)


class Releases(Protocol):
    """What an engine that can give back a root offers beside `Service`."""

    async def release(self, root: str) -> dict[str, Any]: ...


class CliParams(msgspec.Struct, kw_only=True):
    """What the client sends. A newer client may send more: what is not known is left out."""

    argv: list[str]
    home: str
    call: str = ""
    program: str = "statectl"
    cwd: str | None = None
    env: dict[str, str] = {}
    tty: bool = False
    width: int = 80
    version: str = ""
    stdin: str | None = None


class Meta(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What `_meta` may say about a call, beside the params of its method."""

    call: str | None = None
    if_rev: int | str | None = None
    dry_run: bool | None = None
    home: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    deadline: float | None = None
    """Seconds after which the answer comes, whatever became of the call."""


@dataclass(frozen=True, slots=True)
class _Peer:
    """The context of one request."""

    send: Send | None
    """None inside a batch, whose answer is one line."""
    pid: int = 0


class Rpc:
    """`commands` is the table; `service` does the work; `home` is the one HOME that is served."""

    def __init__(self, service: Service, commands: Commands, home: str) -> None:
        self._service = service
        self._commands = commands
        self._home = home
        self._homes = {home}
        self._discovered: orjson.Fragment | None = None
        self._methods: dict[str, Callable[..., Awaitable[Result]]] = {
            name: self._typed(domain, operation) for name, (domain, operation) in commands.methods.items()
        }
        for name, method in {"cli": self._run_cli, "daemon.release": self._run_release}.items():
            if name in self._methods:
                raise ValueError(f"two methods are called {name}")
            self._methods[name] = _method(method)

    async def handle(self, line: bytes, send: Send, pid: int = 0) -> None:
        """Answer one message of the process `pid`. Up to its first await it runs at once, so messages keep their
        order."""
        answer = await self._message(line, send, pid)
        if answer is not None:
            send(answer + b"\n")

    async def _message(self, line: bytes, send: Send, pid: int) -> bytes | None:
        try:
            message = orjson.loads(line)
        except ValueError as error:
            reason = "not UTF-8" if not _is_utf8(line) else f"not JSON: {str(error).partition(':')[0]}"
            return failure(PARSE_ERROR, reason, None, {"kind": "parse_error"})
        except RecursionError:  # pragma: no cover - orjson stops at a depth of its own
            return failure_of(TooDeep("nested too deeply"), None)
        if line.count(b"[") + line.count(b"{") > config.MAX_DEPTH and _depth(message) > config.MAX_DEPTH:
            entry = message if isinstance(message, dict) else {}
            return failure_of(TooDeep(f"nested more than {config.MAX_DEPTH} levels deep"), _id(entry))
        if _EXACT.search(line) and not (isinstance(message, dict) and message.get("method") == "cli"):
            try:
                message = _exact.decode(line)
            except (ValueError, ArithmeticError):
                id = _id(message) if isinstance(message, dict) else None
                return failure(PARSE_ERROR, "not JSON: a number that cannot be read", id, {"kind": "parse_error"})
        if not isinstance(message, list):
            return await self._one(message, _Peer(send, pid))
        if not message:
            return failure(INVALID_REQUEST, "an empty batch", None, {"kind": "invalid_request"})
        if len(message) > config.MAX_BATCH:
            return failure_of(BatchTooLong(f"a batch has at most {config.MAX_BATCH} entries"), None)
        answers = [answer for answer in await self._batch(message, pid) if answer is not None]
        return b"[" + b",".join(answers) + b"]" if answers else None

    async def _batch(self, entries: list[Any], pid: int) -> list[bytes | None]:
        """In order; writers that follow each other enter the queue together, so that they can share a sync."""
        answers: list[bytes | None] = []
        run: list[Coroutine[Any, Any, bytes | None]] = []
        for entry in entries:
            if not self._writes(entry):
                answers += await asyncio.gather(*run)
                run = []
            run.append(self._one(entry, _Peer(None, pid)))
        return answers + await asyncio.gather(*run)

    def _writes(self, entry: Any) -> bool:
        name = entry.get("method") if isinstance(entry, dict) else None
        found = self._commands.methods.get(name) if isinstance(name, str) else None
        return found is not None and found[1].kind is not Kind.READER

    async def _one(self, entry: Any, peer: _Peer) -> bytes | None:
        problem = _invalid(entry)
        if problem is not None:
            return problem
        if "id" not in entry:
            self._notified(entry["method"])
            return None
        asked = Request(method=entry["method"], params=entry["params"], id=entry["id"])
        _, result = await dispatch_request(cast(Any, self._methods), peer, asked)
        return self._encoded(result, entry)

    def _notified(self, method: str) -> None:
        found = self._commands.methods.get(method)
        if method == "cli" or (found is not None and found[1].kind is not Kind.READER):
            _log.warning("a write sent as a notification was refused", method=method)
        elif found is None:
            _log.info("a notification was not understood")

    def _encoded(self, result: Any, entry: dict[str, Any]) -> bytes:
        if hasattr(result, "_value"):
            return orjson.dumps({"jsonrpc": "2.0", "id": entry["id"], "result": result._value.result})
        error = result._error
        if error.code == METHOD_NOT_FOUND:
            close = meant(entry["method"], self._methods)
            data = {"kind": "no_such_method", "hint": f"did you mean {close}?" if close else "rpc.discover lists them"}
            return failure(METHOD_NOT_FOUND, "no such method", entry["id"], data)
        return failure(error.code, error.message, entry["id"], None if error.data is NODATA else error.data)

    # Methods ----------------------------------------------------------------------------------------------------------

    def _typed(self, domain: Domain, operation: Operation) -> Callable[..., Awaitable[Result]]:
        async def run(peer: _Peer, params: dict[str, Any]) -> Any:
            if operation.method != "rpc.discover":
                return await self._run_typed(peer, domain, operation, params)
            if self._discovered is None:  # large, and the same for ever
                self._discovered = _fragment(await self._run_typed(peer, domain, operation, params))
            return self._discovered

        return _method(run)

    async def _run_typed(self, peer: _Peer, domain: Domain, operation: Operation, params: dict[str, Any]) -> Any:
        meta = _meta(params.pop("_meta", None))
        if has_control(domain, operation):
            for name in ("call", "if_rev", "dry_run"):
                value = getattr(meta, name)
                if value is not None:
                    params.setdefault(name, value)
        done = request(domain, operation, params)
        caller = Caller(home=self._known_home(meta.home), cwd=meta.cwd, env=meta.env, pid=peer.pid)
        call = Call(
            domain=domain,
            operation=operation,
            params=done.params,
            caller=caller,
            id=done.control.call or meta.call or secrets.token_hex(16),
            if_rev=done.control.if_rev,
            dry_run=done.control.dry_run,
        )
        answer = await self._in_time(call, meta.deadline)
        result = answer.result
        if answer.rev is not None and isinstance(result, dict) and "rev" not in result:
            result = {**result, "rev": answer.rev}
        return result

    async def _in_time(self, call: Call, deadline: float | None) -> Answer:
        if deadline is None:
            return await self._run(call)
        task = asyncio.ensure_future(self._run(call))
        done, _ = await asyncio.wait({task}, timeout=max(0.0, deadline))
        if done:
            return task.result()
        task.add_done_callback(_seen)  # it goes on: a write that was accepted is done
        if call.operation.kind is Kind.READER:
            raise DeadlineExceeded("no answer before the deadline")
        raise UnknownOutcome("no answer before the deadline", hint=f"repeat it with the call id {call.id}")

    async def _run(self, call: Call) -> Answer:
        if call.operation.queue is not None:
            return cast(Answer, await call.operation.queue(self._service, call))
        serve = call.operation.serve
        if serve is None:
            return await self._service.submit(call)
        context = Context(now=datetime.now(UTC), zone=UTC, caller=call.caller, call=call.id, root="")
        outcome = await serve(self._service, call.params, context)
        return Answer(outcome.result, outcome.status, hand=outcome.hand)

    async def _run_cli(self, peer: _Peer, params: dict[str, Any]) -> Any:
        given = _converted(params, CliParams)
        caller = Caller(
            home=self._known_home(given.home),
            cwd=given.cwd,
            env=given.env,
            tty=given.tty,
            width=given.width,
            version=given.version,
            pid=peer.pid,
        )
        call_id = given.call or secrets.token_hex(16)
        parsed = self._commands.parse(given.argv, given.program, caller, given.stdin, call_id)
        if isinstance(parsed, Reply):
            return _reply(parsed)
        if parsed.deadline != "read" and peer.send is not None:
            peer.send(BEGIN)  # before anything happens: who gets no answer must know that there was a write
        return _reply(await self._answer(parsed))

    async def _answer(self, parsed: Parsed) -> Reply:
        try:
            return render(parsed, await self._run(parsed.call))
        except Stopping:
            raise  # the client asks the next daemon
        except StatedError as error:
            return render_error(parsed, error)
        except Exception as error:  # whatever it is, the caller gets its one line
            return render_error(parsed, _unexpected(error, parsed.place))

    async def _run_release(self, peer: _Peer, params: dict[str, Any]) -> Any:
        root = params.get("root")
        if not isinstance(root, str) or set(params) != {"root"}:
            raise Usage("expected the path of a folder", where="/root")
        return await cast(Releases, self._service).release(root)

    def _known_home(self, home: str | None) -> str:
        """The served HOME. A call of another home would write that home's state into this home's journal."""
        if home is None or home in self._homes:
            return self._home
        try:
            same = home.startswith("/") and os.path.samefile(home, self._home)
        except (OSError, ValueError):
            same = False
        if not same:
            raise WrongHome("the daemon at this socket serves another HOME", hint="unset STATED_SOCKET")
        if len(self._homes) < 16:
            self._homes.add(home)
        return self._home


class WrongHome(Unavailable):
    """A call that came to the daemon of another HOME."""

    code = -32013
    kind = "wrong_home"


_SIGNATURE: Final = inspect.Signature(
    [
        inspect.Parameter("peer", inspect.Parameter.POSITIONAL_ONLY),
        inspect.Parameter("params", inspect.Parameter.VAR_KEYWORD),
    ]
)


# Answers --------------------------------------------------------------------------------------------------------------


def failure(code: int, message: str, id: Any, data: Mapping[str, Any] | None = None) -> bytes:
    """An error's message, without the line's ending."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data:
        error["data"] = _fragment(dict(data))
    return orjson.dumps({"jsonrpc": "2.0", "id": id, "error": error})


def failure_of(error: StatedError, id: Any) -> bytes:
    return failure(error.code, error.reason, id, error.payload())


def refusal(error: StatedError, head: bytes) -> bytes:
    """The answer to a message that is not read; `head` is how it begins. With its line ending."""
    found = _ID.match(head)
    return failure_of(error, orjson.loads(found[1]) if found else None) + b"\n"


def request_id(line: bytes) -> Any:
    """The id of a request, where there is one."""
    try:
        message = orjson.loads(line)
    except ValueError:
        return None
    return _id(message) if isinstance(message, dict) else None


def _method(run: Callable[[_Peer, dict[str, Any]], Coroutine[Any, Any, Any]]) -> Callable[..., Awaitable[Result]]:
    """A method as the library wants it. It compares each call with the signature, which is worked out once here."""

    async def method(peer: _Peer, /, **params: Any) -> Result:
        return await _guarded(run(peer, params))

    method.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    return method


async def _guarded(work: Coroutine[Any, Any, Any]) -> Result:
    """The library's two results for whatever a method does, encoded here, where that can still fail."""
    try:
        return Success(_fragment(await work))
    except StatedError as error:
        return Error(error.code, error.reason, error.payload())
    except Exception as error:  # described in the log, not to the peer
        problem = _unexpected(error, "")
        return Error(problem.code, problem.reason, problem.payload())


def _unexpected(error: Exception, where: str) -> Internal:
    number = secrets.token_hex(4)
    _log.exception("an operation failed unexpectedly", number=number, where=where, exc_info=error)
    hint = f"the log has it as {number}"
    return Internal("unexpected failure", where=where, hint=hint, data={"number": number})


def _reply(reply: Reply) -> dict[str, Any]:
    return {"status": reply.status, "hand": [list(row) for row in reply.hand], "err": reply.err, "out": reply.out}


def _fragment(value: Any) -> orjson.Fragment:
    if isinstance(value, orjson.Fragment):
        return value
    try:
        return orjson.Fragment(json_text.dumps(value))
    except json_text.NotJson:
        return orjson.Fragment(json_text.dumps(_utf8(value)))


def _utf8(value: Any) -> Any:
    """File names may hold what UTF-8 cannot: it comes out as question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_utf8(key): _utf8(item) for key, item in value.items()}
    return [_utf8(item) for item in value] if isinstance(value, (list, tuple)) else value


# Requests -------------------------------------------------------------------------------------------------------------


def _invalid(entry: Any) -> bytes | None:
    """The answer to what is not a request of ours, or None."""
    if not isinstance(entry, dict):
        return _not_a_request("a request is an object", None)
    id = _id(entry)
    if entry.get("jsonrpc") != "2.0":
        return _not_a_request('"jsonrpc" must be "2.0"', id)
    if not isinstance(entry.get("method"), str):
        return _not_a_request('"method" must be a string', id)
    if "id" in entry and id is None:
        return _not_a_request('"id" must be a string or an integer', None)
    params = entry.get("params", {})
    if isinstance(params, list):
        return failure(INVALID_PARAMS, "params are given by name", id, {"kind": "usage"})
    if not isinstance(params, dict):
        return _not_a_request('"params" must be an object', id)
    entry["params"] = params
    return None


def _not_a_request(reason: str, id: Any) -> bytes:
    return failure(INVALID_REQUEST, reason, id, {"kind": "invalid_request"})


def _id(entry: Mapping[str, Any]) -> str | int | None:
    id = entry.get("id")
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        return None
    return id if isinstance(id, str) or abs(id) < 1 << 63 else None


def _depth(value: Any) -> int:
    """How deep it is nested, looked at level by level."""
    depth = 0
    level = [value]
    while level := [part for part in level if isinstance(part, (dict, list))]:
        depth += 1
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    return depth


def _meta(value: Any) -> Meta:
    return Meta() if value is None else _converted(value, Meta, "/_meta")


def _converted(value: Any, kind: type[_T], where: str = "") -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Usage(str(error).replace("`$", "`"), where=where) from None


def _seen(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
