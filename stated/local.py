"""One call without a daemon: the same engine, locks, recovery and operations, for one message.

The message comes as a line on standard input, the frames of its answer go to standard output, as on a daemon's
socket: the client reads both alike. What may be relied on: the answer is sent after the checkpoint, so nothing is left
to do for a daemon; where a daemon that answers owns the state, the answer is `stopping`, and the client asks it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

import anyio

from stated import config, domains, log, places
from stated.cli import Commands
from stated.daemon import home_of_caller
from stated.engine import Engine
from stated.errors import LineTooLong, StatedError, Stopping
from stated.rpc import Rpc, failure_of, refusal, request_id

__all__ = ["run"]

PATIENCE: Final = 5.0
"""Seconds to wait for another call without a daemon: a write is given ten in all. Who gives a call more says so."""


def run(patience: float = PATIENCE) -> int:
    """Answer one message; the exit status only says whether there was one."""
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a call that has begun is finished, as a daemon would
    line = sys.stdin.buffer.readline(config.MAX_LINE + 1)
    if len(line) > config.MAX_LINE:
        _send(refusal(LineTooLong(f"a message has at most {config.MAX_LINE} bytes"), line[:512]))
        return 0
    if not line.strip():
        return 2
    try:
        home = home_of_caller()
        settings = config.load(home)
        log.set_up(settings.log_level, "json")
        anyio.run(_answer, home, settings, line, patience)
    except StatedError as error:
        _send(failure_of(error, request_id(line)) + b"\n")
    return 0


async def _answer(home: str, settings: config.Config, line: bytes, patience: float) -> None:
    table = domains.load()
    engine = Engine(home, config=settings, domains=table, mode="local", own=lambda: _own(home, patience))
    await engine.start()
    try:
        await Rpc(engine, Commands(table), home).handle(line, _send, os.getppid())
    finally:
        await engine.close()


def _own(home: str, patience: float) -> places.Owner:
    """Become the owner. Raises Stopping where a daemon is: the client asks that one."""
    try:
        return places.own(home, "", patience, kind="call")
    except places.Taken as taken:
        raise Stopping("a daemon owns this state", where=taken.socket) from None


def _send(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        pass  # who asked is gone; what it asked for is done all the same
