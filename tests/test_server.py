"""Sockets: framing, limits, peers that misbehave, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from stated import places, server
from stated.call import Service
from stated.cli import Commands
from stated.errors import Unavailable
from stated.rpc import Rpc
from tests.test_rpc import DEMO, FakeService, call, cli

HELLO = json.dumps(call("rpc.hello")).encode() + b"\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="sv-"))
    yield path
    shutil.rmtree(path)


class Running:
    """A server in this loop."""

    def __init__(self, path: str, service: FakeService, server: server.Server, task: asyncio.Task[None]) -> None:
        self.path = path
        self.service = service
        self.server = server
        self.task = task

    async def connect(self, limit: int = 1 << 26) -> Client:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=limit)
        return Client(reader, writer)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, message: Any) -> Any:
        self.send(message)
        return await self.answer()

    def send(self, message: Any) -> None:
        self.writer.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def answer(self) -> Any:
        line = await asyncio.wait_for(self.reader.readline(), 20)
        return json.loads(line) if line else None

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def running(folder: Path, **limits: Any) -> AsyncIterator[Running]:
    path = str(folder / "s")
    service = FakeService()
    bound = server.bind(path, 1.0)
    made = server.Server(Rpc(cast(Service, service), Commands([DEMO]), "/tmp"), **limits)
    task = asyncio.create_task(made.run(bound.sock, stop_deadline=5.0))
    try:
        yield Running(path, service, made, task)
    finally:
        made.stop()
        await asyncio.wait_for(task, 20)
        bound.tidy()
        for peer in list(made.peers):
            peer.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # the poll of this wait


# Framing --------------------------------------------------------------------------------------------------------------


def test_lines_may_come_in_any_pieces(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            client = await run.connect()
            stream = HELLO * 3
            for at in range(0, len(stream), 7):
                client.send(stream[at : at + 7])
                await client.writer.drain()
            assert [(await client.answer())["id"] for _ in range(3)] == [1, 1, 1]
            client.send(b"\n  \n\r\n" + HELLO + HELLO[:10])
            assert (await client.answer())["id"] == 1
            client.send(HELLO[10:])
            assert (await client.answer())["id"] == 1
            await client.close()

    asyncio.run(main())


def test_a_flood_is_begun_a_thousand_at_a_time(folder: Path) -> None:
    """However much comes in one piece: what is not begun is a few bytes each, not a task each."""

    async def main() -> None:
        async with running(folder) as run:
            run.service.hold = asyncio.Event()
            client = await run.connect()
            client.send((json.dumps(call("demo.put", word="x")).encode() + b"\n") * (3 * server.AT_ONCE))
            client.writer.write_eof()
            await until(lambda: len(run.service.calls) >= server.AT_ONCE)
            assert len(run.service.calls) == server.AT_ONCE
            run.service.hold.set()
            answers = [await client.answer() for _ in range(3 * server.AT_ONCE)]
            assert all(answer["result"]["word"] == "x" for answer in answers)
            assert await client.answer() is None
            await client.close()

    asyncio.run(main())


def test_a_peer_that_ends_its_side_still_gets_its_answers(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            run.service.hold = asyncio.Event()
            client = await run.connect()
            client.send(call("demo.put", word="x"))
            client.writer.write_eof()
            await until(lambda: run.service.calls)
            run.service.hold.set()
            assert (await client.answer())["result"]["word"] == "x"
            assert await client.answer() is None
            await until(lambda: not run.server.peers)
            await client.close()

    asyncio.run(main())


def test_a_peer_that_hangs_up_has_asked_all_the_same(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            run.service.hold = asyncio.Event()
            for number in range(20):
                client = await run.connect()
                client.send(cli("demo", "put", str(number)))
                await client.writer.drain()
                client.writer.transport.abort()
            await until(lambda: len(run.service.calls) == 20)
            run.service.hold.set()
            await until(lambda: not run.server.requests)
            other = await run.connect()
            assert (await other.ask(HELLO))["id"] == 1
            await other.close()

    asyncio.run(main())


def test_answers_may_overtake_and_writes_keep_their_order(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            run.service.hold = asyncio.Event()
            client = await run.connect()
            for number in range(50):
                client.send(call("demo.put", number, word=str(number)))
            client.send(call("demo.get", "r", word="r"))
            assert (await client.answer())["id"] == "r"
            run.service.hold.set()
            assert sorted([(await client.answer())["id"] for _ in range(50)]) == list(range(50))
            words = [done.params.word for done in run.service.calls]  # type: ignore[attr-defined]
            assert words == [str(number) for number in range(50)] + ["r"]
            await client.close()

    asyncio.run(main())


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [True, False], ids=["with its end", "without an end"])
def test_a_line_that_is_too_long_gets_its_own_error_under_its_id(folder: Path, ended: bool) -> None:
    async def main() -> None:
        async with running(folder, max_line=100_000, linger=0.2) as run:
            client = await run.connect()
            line = json.dumps(call("demo.get", 77, word="x" * 3_000_000)).encode()
            client.send(line + (b"\n" if ended else b""))
            answer = await client.answer()
            assert (answer["error"]["code"], answer["id"]) == (-32020, 77)
            assert await client.answer() is None
            assert run.service.calls == []
            await client.close()

    asyncio.run(main())


def test_long_lines_take_time_in_proportion(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            client = await run.connect()
            answer = await client.ask(call("demo.get", word="ab" * 4_000_000))
            assert len(answer["result"]["word"]) == 8_000_000
            await client.close()

    asyncio.run(main())


def test_one_connection_too_many_is_told_so(folder: Path) -> None:
    async def main() -> None:
        async with running(folder, max_connections=3, linger=0.05) as run:
            clients = [await run.connect() for _ in range(3)]
            for client in clients:
                assert (await client.ask(HELLO))["id"] == 1
            extra = await run.connect()
            assert (await extra.answer())["error"]["code"] == -32024
            assert await extra.answer() is None
            await extra.close()
            await clients[0].close()
            await until(lambda: len(run.server.peers) == 2)
            again = await run.connect()
            assert (await again.ask(HELLO))["id"] == 1
            for client in (*clients[1:], again):
                await client.close()

    asyncio.run(main())


def test_a_peer_that_takes_nothing_is_let_go_and_disturbs_nobody(folder: Path) -> None:
    async def main() -> None:
        async with running(folder, send_stall=0.3) as run:
            run.service.result = {"big": "x" * 2_000_000}
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.setblocking(False)
                deaf.connect(run.path)
                for _ in range(10):
                    await asyncio.get_running_loop().sock_sendall(deaf, json.dumps(call("demo.get")).encode() + b"\n")
                other = await run.connect()
                for _ in range(5):
                    assert len((await other.ask(call("demo.get")))["result"]["big"]) == 2_000_000
                await until(lambda: len(run.server.peers) == 1)
                await other.close()

    asyncio.run(main())


def test_no_more_is_read_from_a_peer_than_it_takes_back(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            run.service.result = {"big": "x" * 300_000}
            with socket.socket(socket.AF_UNIX) as slow:
                slow.setblocking(False)
                slow.connect(run.path)
                loop = asyncio.get_running_loop()
                line = json.dumps(call("demo.get")).encode() + b"\n"
                sending = asyncio.create_task(loop.sock_sendall(slow, line * 9000))
                await until(lambda: any(peer.unsent for peer in run.server.peers))
                await until(lambda: not run.server.requests)
                taken = len(run.service.calls)
                assert taken < 9000
                received = 0
                while received < (taken + 100) * 300_000:
                    received += len(await loop.sock_recv(slow, 1 << 20))
                assert len(run.service.calls) > taken
                sending.cancel()
                await asyncio.wait({sending})

    asyncio.run(main())


def test_another_user_is_not_heard(folder: Path) -> None:
    async def main() -> None:
        async with running(folder, uid=os.getuid() + 1) as run:
            client = await run.connect()
            client.send(HELLO)
            with contextlib.suppress(OSError):
                assert await client.answer() is None
            await client.close()

    asyncio.run(main())


def test_the_uid_is_the_kernels_word() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert server._peer_of(one) == (os.getpid(), os.getuid())


# The end --------------------------------------------------------------------------------------------------------------


def test_a_stop_finishes_what_was_accepted_and_reads_nothing_more(folder: Path) -> None:
    async def main() -> None:
        async with running(folder) as run:
            run.service.hold = asyncio.Event()
            client = await run.connect()
            idle = await run.connect()
            client.send(call("demo.put", word="accepted"))
            await until(lambda: run.service.calls)
            run.server.stop()
            await until(lambda: run.server.stopping)
            client.send(call("demo.put", word="late"))
            with pytest.raises(OSError, match="refused"):
                await run.connect()
            assert not run.task.done()
            run.service.hold.set()
            assert (await client.answer())["result"]["word"] == "accepted"
            await asyncio.wait_for(run.task, 20)
            assert len(run.service.calls) == 1
            assert not client.reader.at_eof(), "the connection ends with the process"
            await client.close()
            await idle.close()

    asyncio.run(main())


def test_a_stop_waits_only_so_long(folder: Path) -> None:
    async def main() -> None:
        bound = server.bind(str(folder / "s"), 1.0)
        service = FakeService()
        service.hold = asyncio.Event()
        made = server.Server(Rpc(cast(Service, service), Commands([DEMO]), "/tmp"))
        task = asyncio.create_task(made.run(bound.sock, stop_deadline=0.1))
        reader, writer = await asyncio.open_unix_connection(str(folder / "s"))
        writer.write(json.dumps(call("demo.put")).encode() + b"\n")
        await until(lambda: service.calls)
        made.stop()
        await asyncio.wait_for(task, 20)
        assert not made.requests
        for peer in list(made.peers):
            peer.close()
        bound.tidy()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        assert reader.at_eof() or not made.peers

    asyncio.run(main())


# Binding --------------------------------------------------------------------------------------------------------------


def test_the_socket_and_its_folder_are_closed_to_others(folder: Path) -> None:
    bound = server.bind(str(folder / "new" / "s"), 1.0)

    assert (folder / "new").stat().st_mode & 0o777 == 0o700
    assert (folder / "new" / "s").stat().st_mode & 0o777 == 0o600
    bound.sock.close()
    bound.tidy()
    assert not (folder / "new" / "s").exists()


def test_what_a_killed_daemon_left_is_replaced(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "s"))

    bound = server.bind(str(folder / "s"), 1.0)

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "s"))
    bound.sock.close()
    bound.tidy()


def test_a_live_socket_is_never_replaced(folder: Path) -> None:
    path = str(folder / "s")
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(path)
        live.listen()
        before = os.lstat(path)

        def answer() -> None:
            for _ in range(2):  # to whether somebody listens, and to whether it answers
                peer, _address = live.accept()
                with peer:
                    if peer.recv(65536):
                        peer.sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(places.Taken):
            server.bind(path, 1.0)
        thread.join()
        with pytest.raises(Unavailable, match="does not answer"):  # and neither is one that hangs
            server.bind(path, 1.0)

        assert os.lstat(path) == before


def test_of_two_that_bind_at_once_one_gets_it(folder: Path) -> None:
    bound = server.bind(str(folder / "s"), 1.0)
    with pytest.raises(Unavailable, match="another process has this socket"):
        server.bind(str(folder / "s"), 0.05)
    bound.sock.close()
    bound.tidy()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_left_alone(folder: Path, kind: str) -> None:
    if kind == "file":
        (folder / "s").write_text("mine")
    elif kind == "folder":
        (folder / "s").mkdir()
    else:
        (folder / "s").symlink_to("/etc/passwd")

    with pytest.raises(Unavailable, match="not a socket"):
        server.bind(str(folder / "s"), 1.0)

    assert os.path.lexists(folder / "s")


def test_a_path_that_is_too_long_is_told(folder: Path) -> None:
    with pytest.raises(Unavailable, match="at most"):
        server.bind(str(folder / ("x" * 120)), 1.0)


def test_somebody_elses_socket_is_not_tidied_away(folder: Path) -> None:
    bound = server.bind(str(folder / "s"), 1.0)
    os.rename(folder / "s", folder / "old")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "s"))

        bound.sock.close()
        bound.tidy()

        assert (folder / "s").exists()


def test_only_a_socket_that_was_passed_to_this_process_is_adopted(folder: Path) -> None:
    for environ in (
        {},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x", "LISTEN_FDNAMES": "s"},
    ):
        assert server.adopted(environ) is None
        assert environ == {}


def test_credentials_are_three_integers() -> None:
    assert server._CREDENTIALS.size == struct.calcsize("3i") == 12
