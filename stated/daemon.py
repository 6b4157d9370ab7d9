"""The daemon's wiring: locks, start order, signals, stop order.

    lock the home's journal → bind the socket → open the engine → say "ready" → accept
    stop accepting → finish and answer what was accepted → checkpoint → take the socket away → unlock

What may be relied on: whoever is told `ready` is answered; nothing is accepted before recovery is done; two daemons of
one home, or at one socket, do not happen; SIGTERM and SIGINT are the orderly stop, with exit status 0.

The first line on standard output is for who started it: `ready PATH`, `taken PATH` (another daemon answers there) or
`failed REASON`. After it nothing is written there, and a pipe is let go.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from typing import Final

import anyio
from anyio.abc import TaskStatus

from stated import config, domains, log, places, server
from stated.cli import Commands
from stated.engine import Engine
from stated.errors import StatedError, Unavailable
from stated.rpc import Rpc

__all__ = ["home_of_caller", "serve"]

PATIENCE: Final = 10.0
"""Seconds to wait for an owner that is about to leave: a daemon that finishes its calls, a call without a daemon."""

LAST_THREADS: Final = 1.0
"""Seconds that threads have to end after everything is done."""

_STOP: Final = {signal.SIGTERM, signal.SIGINT}

TAKEN: Final = 1
FAILED: Final = 3

_log = log.get_logger("stated.daemon")


def home_of_caller() -> str:
    """HOME, or the account's own where it is not set. Raises Unavailable."""
    home = os.environ.get("HOME") or places.account_home()
    if not home.startswith("/") or not os.path.isdir(home):
        raise Unavailable("HOME is not the absolute path of a folder", where=home)
    return home


def serve(socket: str | None, idle_exit: float | None, form: log.Form | None) -> int:
    """Serve until told to stop; the exit status."""
    status = _serve_here(socket, idle_exit, form)
    # A thread that hangs on a dead mount would keep the interpreter from ending; all that counts is on the disk.
    end = time.monotonic() + LAST_THREADS
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                os._exit(status)
    return status


def _serve_here(socket: str | None, idle_exit: float | None, form: log.Form | None) -> int:
    # Told to stop before the loop can listen: that waits, and is then the orderly stop.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    os.umask(0o077)
    try:
        home = home_of_caller()
        settings = config.load(home)
        log.set_up(settings.log_level, form)
        bound = server.adopted(os.environ)
        if bound is not None:
            path = bound.path
        elif socket is not None:
            path = os.path.abspath(socket)
        else:
            path = places.choose(dict(os.environb), home)
        with places.own(home, path, PATIENCE, adopted=bound is not None):
            if bound is None:
                bound = server.bind(path, PATIENCE)
            try:
                _record_program(home)
                return anyio.run(_serve, home, settings, bound, idle_exit)
            finally:
                bound.tidy()
    except places.Taken as taken:
        _tell(b"taken " + os.fsencode(taken.socket))
        sys.stderr.write(f"stated: another daemon answers at {taken.socket}\n")
        return TAKEN
    except StatedError as error:
        _tell(b"failed " + error.line().encode("utf-8", "replace"))
        sys.stderr.write(f"stated: {error.line()}\n")
        return FAILED


async def _serve(home: str, settings: config.Config, bound: server.Bound, idle_exit: float | None) -> int:
    table = domains.load()
    engine = Engine(home, config=settings, domains=table, socket=bound.path)
    listening = server.Server(Rpc(engine, Commands(table), home))
    engine.on_stop = listening.stop
    problem: StatedError | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_signals, listening)
        try:
            await engine.start()
            _log.info("serving", socket=bound.path, home=home, pid=os.getpid())
            _tell(b"ready " + os.fsencode(bound.path))
            _release_output()
            if idle_exit is not None:
                tasks.start_soon(_idle, listening, idle_exit)
            await listening.run(bound.sock)
        except StatedError as error:
            problem = error
        finally:
            with anyio.CancelScope(shield=True):
                await engine.close()
        # From here on nothing is left to finish: a second signal must not turn the orderly end into another one.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
    _log.info("stopped")
    return 0


async def _signals(listening: server.Server, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
        task_status.started()
        async for number in signals:
            if number is not signal.SIGHUP:  # a terminal that closes is no reason to stop
                _log.info("stopping", signal=number.name)
                listening.stop()


async def _idle(listening: server.Server, seconds: float) -> None:
    """Stop when nobody has been connected for so long."""
    while True:
        left = listening.last_used + seconds - time.monotonic()
        if listening.peers:
            left = seconds
        elif left <= 0:
            _log.info("stopping: idle", seconds=seconds)
            listening.stop()
            return
        await anyio.sleep(max(left, 0.01))


def _tell(line: bytes) -> None:
    """To who started this process; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, line + b"\n")


def _release_output() -> None:
    """Let go of a pipe, whose reader waits for its end, once the first line is out."""
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.fstat(1).st_mode):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.close(null)


def _record_program(home: str) -> None:
    """Leave the path of this program for clients that stand elsewhere and have a short PATH."""
    program = os.path.abspath(sys.argv[0])
    path = os.path.join(config.state_home(home), "program")
    if os.path.basename(program) != "stated" or not os.access(program, os.X_OK):
        return
    text = os.fsencode(program) + b"\n"
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            if file.read(4096) == text:
                return
        with open(f"{path}.new", "wb") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
