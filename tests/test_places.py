"""Where the socket is, who owns a home, and that the client and the daemon agree on both."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stated import config, places
from stated.errors import Unavailable
from tests.conftest import CLIENTS

HASHED = "stated-%016x.sock" % (int.from_bytes(b"/tmp/fixture", "big") % 0xFFFFFFFFFFFFFFC5)
LONG = "/tmp/" + "x" * 103

# env, home, own, the places
TABLE: dict[str, tuple[dict[str, str], str, bool, list[str]]] = {
    "the account's own home": (
        {},
        "/home/ann",
        True,
        ["/run/user/1000/stated/stated.sock", "/home/ann/.local/state/stated/run/stated.sock"],
    ),
    "another home": (
        {},
        "/tmp/fixture",
        False,
        [f"/run/user/1000/stated/{HASHED}", f"/tmp/fixture/.local/state/stated/run/{HASHED}"],
    ),
    "a socket that is named comes first": (
        {"STATED_SOCKET": "/tmp/s/sock"},
        "/home/ann",
        True,
        ["/tmp/s/sock", "/run/user/1000/stated/stated.sock", "/home/ann/.local/state/stated/run/stated.sock"],
    ),
    "a relative or empty one is no place": (
        {"STATED_SOCKET": "sock", "XDG_RUNTIME_DIR": ""},
        "/home/ann",
        True,
        ["/run/user/1000/stated/stated.sock", "/home/ann/.local/state/stated/run/stated.sock"],
    ),
    "a runtime folder of its own": (
        {"XDG_RUNTIME_DIR": "/var/run/ann"},
        "/home/ann",
        True,
        [
            "/run/user/1000/stated/stated.sock",
            "/var/run/ann/stated/stated.sock",
            "/home/ann/.local/state/stated/run/stated.sock",
        ],
    ),
    "too long for a socket's address": (
        {"STATED_SOCKET": LONG},
        "/home/ann",
        True,
        [
            "/tmp/stated-1000/%016x.sock" % (int.from_bytes(LONG.encode(), "big") % 0xFFFFFFFFFFFFFFC5),
            "/run/user/1000/stated/stated.sock",
            "/home/ann/.local/state/stated/run/stated.sock",
        ],
    ),
    "long in bytes, not in characters": (
        {"STATED_SOCKET": "/tmp/" + "ü" * 52},
        "/home/ann",
        True,
        [
            "/tmp/stated-1000/%016x.sock" % (int.from_bytes(("/tmp/" + "ü" * 52).encode(), "big") % 0xFFFFFFFFFFFFFFC5),
            "/run/user/1000/stated/stated.sock",
            "/home/ann/.local/state/stated/run/stated.sock",
        ],
    ),
}


def section(path: Path) -> str:
    found = re.search(r"^# places: begin\n(.*)^# places: end\n", path.read_text(), re.M | re.S)
    assert found
    return found[1]


def test_client_and_daemon_hold_the_same_text() -> None:
    assert section(CLIENTS / "statectl") == section(Path(places.__file__))


@pytest.mark.parametrize("side", ["client", "daemon"])
@pytest.mark.parametrize("case", TABLE)
def test_the_table(side: str, case: str) -> None:
    env, home, own, wanted = TABLE[case]
    names: dict[str, object] = {}
    exec(section(CLIENTS / "statectl"), names)
    function = places.places if side == "daemon" else names["places"]

    found = function({k.encode(): v.encode() for k, v in env.items()}, home.encode(), own, 1000, 107)  # type: ignore[operator]

    assert found == [path.encode() for path in wanted]


def test_every_place_fits_into_an_address() -> None:
    env = {b"STATED_SOCKET": b"/" + b"s" * 200, b"XDG_RUNTIME_DIR": b"/" + b"x" * 200}

    found = places.places(env, b"/" + b"h" * 200, False, 4294967294, 103)

    assert all(len(path) <= 103 for path in found)
    assert len(set(found)) == 4


def test_two_homes_never_share_a_place() -> None:
    homes = [f"/tmp/st-{number:08x}".encode() for number in range(3000)]

    names = {places.places({}, home, False, 1, 107)[0] for home in homes}

    assert len(names) == len(homes)


# Folders --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def short() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pl-"))
    yield folder
    shutil.rmtree(folder)


def test_a_folder_counts_only_when_it_is_real_ours_and_closed(short: Path) -> None:
    uid = os.getuid()
    closed, open_, link, file = short / "closed", short / "open", short / "link", short / "file"
    closed.mkdir(mode=0o700)
    open_.mkdir()
    open_.chmod(0o710)
    link.symlink_to(closed)
    file.touch(mode=0o700)

    assert places.ours(os.fsencode(closed), uid)
    assert not places.ours(os.fsencode(closed), uid + 1)
    for other in (open_, link, file, short / "absent"):
        assert not places.ours(os.fsencode(other), uid)


def test_a_socket_is_not_put_where_others_may_write(short: Path) -> None:
    (short / "open").mkdir()
    (short / "open").chmod(0o777)

    with pytest.raises(Unavailable, match="your own and closed"):
        places.make_folder(str(short / "open" / "sock"))
    with pytest.raises(Unavailable, match="your own and closed"):
        places.choose({b"STATED_SOCKET": os.fsencode(short / "open" / "sock")}, str(short))


def test_without_anything_else_the_place_is_below_home(short: Path) -> None:
    if os.path.isdir(f"/run/user/{os.getuid()}"):
        pytest.skip("this login has a runtime folder")

    chosen = places.choose({}, str(short))

    assert chosen.startswith(f"{short}/.local/state/stated/run/stated-")
    assert places.ours(os.fsencode(os.path.dirname(chosen)), os.getuid())


def test_a_runtime_folder_of_somebody_else_is_left_alone(short: Path) -> None:
    foreign = short / "foreign"
    foreign.mkdir()
    foreign.chmod(0o755)

    places.choose({b"XDG_RUNTIME_DIR": os.fsencode(foreign)}, str(short))

    assert list(foreign.iterdir()) == []


# Owning ---------------------------------------------------------------------------------------------------------------


def test_one_process_owns_a_home(short: Path) -> None:
    with places.own(str(short), "/tmp/s", 1.0), pytest.raises(Unavailable, match="does not answer"):
        places.own(str(short), "", 0.05)
    places.own(str(short), "", 0.05).close()


def test_the_lock_ends_with_its_process(short: Path) -> None:
    program = f"from stated import places; places.own({str(short)!r}, '', 1); print(1, flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    with pytest.raises(Unavailable):
        places.own(str(short), "", 0.05)

    child.kill()
    child.wait()
    child.stdout.close()
    child.stdin.close()

    places.own(str(short), "", 5.0).close()


def test_an_owner_that_answers_is_named(short: Path) -> None:
    path = str(short / "sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        with places.own(str(short), path, 1.0), pytest.raises(places.Taken) as taken:
            places.own(str(short), "", 1.0)
        thread.join()

    assert taken.value.socket == path


def test_a_socket_without_an_answer_is_not_alive(short: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "sock"))
        listener.listen()

        assert not places.answers(str(short / "sock"), 0.05)
    assert not places.answers(str(short / "sock"), 0.05)
    assert not places.answers(str(short / "absent"), 0.05)


def test_a_home_that_is_not_there_is_not_made(short: Path) -> None:
    with pytest.raises(Unavailable, match="not a folder"):
        places.own(str(short / "nobody"), "", 0.05)

    assert not (short / "nobody").exists()


def test_the_lock_lies_beside_the_journal(short: Path) -> None:
    with places.own(str(short), "/tmp/where", 1.0) as owner:
        assert owner.path == config.lock_path(str(short))
        assert Path(owner.path).read_text() == "/tmp/where\n"
