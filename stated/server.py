"""Sockets: binding one safely, accepting, cutting lines, limits, and an end that loses nothing that was accepted.

What may be relied on:

- A socket that answers is never replaced; one that a killed daemon left is.
- Only the same user is heard. No peer, dead, slow or hostile, disturbs another: whatever one connection raises ends
  that connection.
- Lines of one connection begin in their order and may be answered in another. A peer that hangs up has asked all the
  same: what was accepted is done.
- `stop` accepts nothing more, and `run` returns when everything accepted is answered. The peers' connections stay open
  until the process is gone, so that who asked for the stop can wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
import time
from collections import deque
from collections.abc import MutableMapping
from typing import Final

from stated import config, places
from stated.errors import LineTooLong, StatedError, TooManyConnections, Unavailable
from stated.log import get_logger
from stated.rpc import Rpc, refusal

__all__ = ["Bound", "Server", "adopted", "bind"]

CHUNK: Final = 262_144
BACKLOG: Final = 512
"""Connections that wait to be accepted: a storm of clients must not be turned away at the door."""

UNSENT: Final = 1 << 20
"""Bytes of answers that wait for a peer. Above it nothing more is read from that peer."""

AT_ONCE: Final = 1000
"""Requests of one connection under way. Above it nothing more is read from that peer."""

SEND_STALL: Final = 30.0
"""Seconds in which a peer must take some of its answer, or it is let go."""

LINGER: Final = 2.0
"""Seconds in which the rest of a refused line is thrown away, so that its sender can read why."""

_log = get_logger("stated.server")


# Binding --------------------------------------------------------------------------------------------------------------


class Bound:
    """A listening socket and what to tidy up after it."""

    def __init__(self, sock: socket.socket, path: str, owner: places.Owner | None) -> None:
        self.sock = sock
        self.path = path
        self._owner = owner
        self._identity = _identity(path) if owner is not None else None

    def tidy(self) -> None:
        """Take the socket's file away, if it is still ours: somebody may have replaced it."""
        if self._owner is None:
            return
        if _identity(self.path) == self._identity:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._owner.close()


def adopted(environ: MutableMapping[str, str]) -> Bound | None:
    """The socket that a service manager passed to this very process, or None."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or int(count) < 1:
        return None
    try:
        sock = socket.socket(fileno=os.dup(3))
    except OSError:
        return None
    if sock.family != socket.AF_UNIX or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        return None
    os.close(3)
    sock.setblocking(False)
    path = sock.getsockname()
    return Bound(sock, path if isinstance(path, str) else os.fsdecode(path), None)


def bind(path: str, patience: float) -> Bound:
    """Listen here. Raises places.Taken when a daemon answers at this path, Unavailable when it cannot be used."""
    if len(os.fsencode(path)) > places.LONGEST:
        raise Unavailable(f"a socket's path has at most {places.LONGEST} bytes", where=path)
    places.make_folder(path)
    end = time.monotonic() + patience
    while (owner := places.lock(path + ".lock")) is None:
        if places.answers(path, min(places.PROBE, patience)):
            raise places.Taken(path)
        if time.monotonic() > end:
            raise Unavailable("another process has this socket and does not answer", where=path)
        time.sleep(0.01)
    try:
        _clear(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(path)
            with contextlib.suppress(OSError):  # some file systems refuse it; the folder is what protects
                os.chmod(path, 0o600)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise Unavailable(f"cannot listen: {error.strerror or error}", where=path) from error
    except BaseException:
        owner.close()
        raise
    return Bound(sock, path, owner)


def _clear(path: str) -> None:
    """Remove what a killed daemon left. What answers, or is no socket, stays."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Unavailable("there is a file that is not a socket", where=path, hint="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(places.PROBE)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise Unavailable(f"cannot be asked: {error.strerror or error}", where=path) from error
    if places.answers(path):
        raise places.Taken(path)
    raise Unavailable("somebody listens there and does not answer", where=path, hint="end that process")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Serving --------------------------------------------------------------------------------------------------------------


class Server:
    """Connections of one listening socket, answered by an `Rpc`.

    It works with the event loop's readiness directly, not with streams and a task a connection: most clients connect,
    ask once and go, and this is half of what an answer costs. A request is a task; nothing else is.
    """

    def __init__(
        self,
        rpc: Rpc,
        *,
        uid: int | None = None,
        max_line: int = config.MAX_LINE,
        max_connections: int = config.MAX_CONNECTIONS,
        send_stall: float = SEND_STALL,
        linger: float = LINGER,
    ) -> None:
        self.rpc = rpc
        self.max_line = max_line
        self.send_stall = send_stall
        self.linger = linger
        self.last_used = time.monotonic()
        self.peers: set[_Peer] = set()
        self.requests: set[asyncio.Task[None]] = set()
        self.stopping = False
        self._uid = os.getuid() if uid is None else uid
        self._max_connections = max_connections
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Accept and read nothing more."""
        self._stop.set()

    async def run(self, sock: socket.socket, *, stop_deadline: float = config.STOP_DEADLINE) -> None:
        """Serve until `stop`, then finish what was accepted (in the time given). Closes the listening socket."""
        self.loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self.loop.add_reader(sock.fileno(), self._accept, sock)
        try:
            await self._stop.wait()
        finally:
            self.stopping = True
            self.loop.remove_reader(sock.fileno())
            sock.close()
            for peer in self.peers:
                peer.pause()
        end = self.loop.time() + stop_deadline
        while self.requests and self.loop.time() < end:
            await asyncio.wait(self.requests, timeout=end - self.loop.time())
        for request in self.requests:
            _log.error("the stop did not wait any longer for a call")
            request.cancel()
        if self.requests:
            await asyncio.wait(self.requests, timeout=1.0)
        # A peer may take its answer slowly, and nothing else is left to do.
        while any(peer.unsent for peer in self.peers) and self.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _accept(self, listener: socket.socket) -> None:
        """Whoever waits at the door."""
        for _ in range(BACKLOG):
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors left: those who wait are served when others have gone
                _log.error("a connection could not be accepted", errno=error.errno)
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(0.05, self._again, listener)
                return
            try:
                self._welcome(sock)
            except Exception as error:
                _log.warning("a connection broke", exc_info=error)
                sock.close()

    def _again(self, listener: socket.socket) -> None:
        if not self.stopping:
            self.loop.add_reader(listener.fileno(), self._accept, listener)

    def _welcome(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.last_used = time.monotonic()
        pid, uid = _peer_of(sock)
        if uid is not None and uid != self._uid:
            _log.warning("a peer of another user was refused", uid=uid)
            sock.close()
            return
        peer = _Peer(self, sock, pid)
        if len(self.peers) > self._max_connections:
            peer.refuse(TooManyConnections(f"at most {self._max_connections} connections"), b"")


class _Peer:
    """One connection. Nothing that goes wrong in it gets out of it."""

    def __init__(self, server: Server, sock: socket.socket, pid: int) -> None:
        self._pid = pid
        self.unsent: deque[bytes] = deque()
        self._server = server
        self._sock = sock
        self._parts: list[bytes] = []
        self._rest = b""
        """Received, and not begun: the peer has asked for enough at once."""
        self._size = 0
        self._bytes = 0
        self._under_way = 0
        self._ended = self._closed = self._refused = self._paused = False
        self._stall: asyncio.TimerHandle | None = None
        self._fd = sock.fileno()  # the loop makes a text of a socket object at every change, and none of a number
        server.peers.add(self)
        server.loop.add_reader(self._fd, self._readable)

    # Reading

    def _readable(self) -> None:
        self._server.last_used = time.monotonic()
        try:
            data = self._sock.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if self._refused:
            if not data:
                self.close()
        elif data:
            self._take(data)
            self._breathe()
        else:
            self._ended = True
            self.pause()
            self._leave()

    def _take(self, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._under_way >= AT_ONCE:
                self._rest = data[start:]
                return
            line = b"".join((*self._parts, data[start:end])) if self._parts else data[start:end]
            self._parts, self._size, start = [], 0, end + 1
            if len(line) > self._server.max_line:
                self._too_long(line)
                return
            if line and not line.isspace():
                self._under_way += 1
                task = self._server.loop.create_task(self._answer(line))
                self._server.requests.add(task)
                task.add_done_callback(self._server.requests.discard)
        if start < len(data):
            self._parts.append(data[start:])
            self._size += len(data) - start
            if self._size > self._server.max_line:
                self._too_long(b"".join(self._parts))

    def _too_long(self, line: bytes) -> None:
        self._parts.clear()
        self.refuse(LineTooLong(f"a message has at most {self._server.max_line} bytes"), line[:512])

    def refuse(self, error: StatedError, head: bytes) -> None:
        """Say why; then let the peer finish sending for a while, as it could not read the reason otherwise."""
        self.send(refusal(error, head))
        self._refused = True
        self._server.loop.call_later(self._server.linger, self.close)

    async def _answer(self, line: bytes) -> None:
        try:
            await self._server.rpc.handle(line, self.send, self._pid)
        except Exception as error:  # a fault of ours must not take the other calls along
            _log.error("a message was not answered", exc_info=error)
        finally:
            self._under_way -= 1
            self._breathe()
            self._leave()

    def pause(self) -> None:
        if not self._paused and not self._closed:
            self._paused = True
            self._server.loop.remove_reader(self._fd)

    def _breathe(self) -> None:
        """Read only as long as the peer takes its answers and has not asked for too much at once."""
        willing = not (self._refused or self._server.stopping) and self._bytes <= UNSENT
        if self._rest and willing and self._under_way <= AT_ONCE // 2:
            rest, self._rest = self._rest, b""
            self._take(rest)
        full = self._bytes > UNSENT or self._under_way >= AT_ONCE or bool(self._rest)
        if full or self._ended or self._server.stopping:
            self.pause()
        elif self._paused and not self._closed:
            self._paused = False
            self._server.loop.add_reader(self._fd, self._readable)

    # Sending

    def send(self, data: bytes) -> None:
        """At once as far as the peer takes it; the rest goes when it takes more."""
        if self._closed:
            return
        if not self.unsent:
            try:
                data = data[self._sock.send(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self.close()
                return
            if data:
                self._server.loop.add_writer(self._fd, self._writable)
                self._stall = self._server.loop.call_later(self._server.send_stall, self._stalled)
        if data:
            self.unsent.append(data)
            self._bytes += len(data)

    def _writable(self) -> None:
        try:
            sent = self._sock.send(memoryview(self.unsent[0])[:CHUNK])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        self._bytes -= sent
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        rest = memoryview(self.unsent.popleft())[sent:]
        if rest:
            self.unsent.appendleft(rest)  # type: ignore[arg-type]  # a view, so that long answers are not copied
        if self.unsent:
            self._stall = self._server.loop.call_later(self._server.send_stall, self._stalled)
        else:
            self._server.loop.remove_writer(self._fd)
        self._breathe()
        self._leave()

    def _stalled(self) -> None:
        _log.warning("a peer that does not take its answer was let go")
        self.close()

    # Leaving

    def _leave(self) -> None:
        """A peer that has ended its side stays until everything it asked for is done and sent."""
        if self._ended and not self._under_way and not self._rest and not self.unsent:
            self.close()

    def close(self) -> None:
        """Now. What is still under way is done all the same."""
        if self._closed:
            return
        self._closed = True
        self._rest = b""
        self._server.loop.remove_reader(self._fd)
        self._server.loop.remove_writer(self._fd)
        if self._stall is not None:
            self._stall.cancel()
        self.unsent.clear()
        self._bytes = 0
        self._server.peers.discard(self)
        self._server.last_used = time.monotonic()
        self._sock.close()


def _peer_of(sock: socket.socket) -> tuple[int, int | None]:
    """Process and uid at the other end; (0, None) where the system cannot tell (the folder then protects alone)."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, None
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(pid), int(uid)


_CREDENTIALS = struct.Struct("3i")
