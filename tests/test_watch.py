"""`stated.watch` on real folders. A hint may come twice or for nothing, so every test waits for one that must come."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stated.watch import Mode, Watcher

STEP = 0.02


class Hints:
    """Collects hints; `wait` is until one of them is there."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.threads: set[str] = set()
        self.condition = threading.Condition()

    def take(self, path: str) -> None:
        with self.condition:
            self.seen.append(path)
            self.threads.add(threading.current_thread().name)
            self.condition.notify_all()

    def wait(self, path: Path | str, deadline: float = 8.0) -> None:
        with self.condition:
            came = self.condition.wait_for(lambda: str(path) in self.seen, deadline)
        assert came, f"no hint for {path}, only for {self.seen}"

    def forget(self) -> None:
        with self.condition:
            self.seen.clear()


Start = Callable[..., tuple[Watcher, Hints]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a watcher over folders and wait until it is armed; all are closed at the end."""
    watchers: list[Watcher] = []

    def make(*folders: Path, mode: Mode = "inotify", step: float = STEP) -> tuple[Watcher, Hints]:
        hints = Hints()
        watcher = Watcher(hints.take, mode, step=step)
        watchers.append(watcher)
        watcher.set_folders(frozenset(map(str, folders)))
        until(lambda: watcher.state()["mode"] != "off")
        for folder in folders:
            if folder.exists():
                hints.wait(folder)
        hints.forget()
        return watcher, hints

    yield make
    for watcher in watchers:
        watcher.close()


def until(condition: Callable[[], bool], deadline: float = 8.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)  # the poll of this wait


def edit_until_hinted(file: Path, hints: Hints) -> None:
    """For a folder that changed its identity more than once: the watch follows, and from then on an edit is hinted."""

    def edit() -> bool:
        file.write_text("again")
        return str(file) in hints.seen

    until(edit)


def test_each_kind_of_edit_in_a_watched_folder_is_hinted(start: Start, tmp_path: Path) -> None:
    _, hints = start(tmp_path)
    file = tmp_path / "profile.json"

    file.write_text("{}")
    hints.wait(file)
    hints.forget()
    (tmp_path / "x").write_text("{ }")
    hints.wait(tmp_path / "x")
    hints.forget()
    os.replace(tmp_path / "x", file)
    hints.wait(file)
    hints.forget()
    with file.open("a") as handle:
        handle.write("\n")
    hints.wait(file)
    hints.forget()
    file.unlink()
    hints.wait(file)


def test_hints_come_from_the_watchers_own_thread(start: Start, tmp_path: Path) -> None:
    _, hints = start(tmp_path)
    (tmp_path / "a").touch()
    hints.wait(tmp_path / "a")

    assert hints.threads == {"stated-watch"}


def test_staging_names_are_not_hinted(start: Start, tmp_path: Path) -> None:
    _, hints = start(tmp_path)
    (tmp_path / ".stated-12-1.tmp").write_text("staged")
    (tmp_path / "after").touch()
    hints.wait(tmp_path / "after")

    assert not [path for path in hints.seen if "stated-12" in path]


def test_folders_below_a_watched_one_are_hinted_by_their_own_name_only(start: Start, tmp_path: Path) -> None:
    _, hints = start(tmp_path)
    (tmp_path / "new-site").mkdir()
    hints.wait(tmp_path / "new-site")
    (tmp_path / "new-site" / "profile.json").touch()
    (tmp_path / "last").touch()
    hints.wait(tmp_path / "last")

    assert str(tmp_path / "new-site" / "profile.json") not in hints.seen


def test_new_folders_are_watched_and_hinted_once_armed(start: Start, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    watcher, hints = start(one)

    watcher.set_folders(frozenset({str(one), str(two)}))
    hints.wait(two)
    (two / "a").touch()
    hints.wait(two / "a")
    (one / "b").touch()
    hints.wait(one / "b")
    watcher.set_folders(frozenset({str(two)}))
    until(lambda: watcher.state()["folders"] == 1)
    hints.forget()
    (two / "c").touch()
    hints.wait(two / "c")

    assert watcher.state() == {
        "mode": "inotify",
        "folders": 1,
        "missing": [],
        "unwatched": [],
        "errors": 0,
        "problem": "",
    }


def test_a_missing_folder_is_watched_from_the_moment_it_is_made(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet" / "there"
    watcher, hints = start(folder)
    assert watcher.state()["missing"] == [str(folder)]

    folder.mkdir(parents=True)
    hints.wait(folder)
    hints.forget()
    (folder / "a").touch()
    hints.wait(folder / "a")
    assert watcher.state()["missing"] == []


@pytest.mark.parametrize("how", ["deleted", "moved away"])
def test_a_folder_made_again_at_its_place_is_watched_again(start: Start, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    watcher, hints = start(folder)

    if how == "deleted":
        shutil.rmtree(folder)
    else:
        folder.rename(tmp_path / "elsewhere")
    hints.wait(folder)
    until(lambda: watcher.state()["missing"] == [str(folder)])
    hints.forget()
    folder.mkdir()
    hints.wait(folder)
    edit_until_hinted(folder / "a", hints)


def test_a_folder_exchanged_for_another_is_watched_in_its_place(start: Start, tmp_path: Path) -> None:
    folder, other = tmp_path / "state", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    watcher, hints = start(folder)

    folder.rename(tmp_path / "old")
    other.rename(folder)
    until(lambda: watcher.state()["missing"] == [])
    hints.wait(folder)
    edit_until_hinted(folder / "a", hints)


def test_a_name_that_is_not_utf8_is_survived(start: Start, tmp_path: Path) -> None:
    watcher, hints = start(tmp_path)
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):
        pass
    hints.wait(tmp_path)  # which file it was cannot be told: the folder is hinted when the watch is there again
    hints.forget()
    (tmp_path / "after").touch()
    hints.wait(tmp_path / "after")

    assert watcher.state()["errors"] == 1
    assert "decode" in watcher.state()["problem"]


def test_a_folder_whose_own_name_is_not_utf8_is_left_out_and_named(start: Start, tmp_path: Path) -> None:
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    good = tmp_path / "good"
    os.mkdir(bad)
    good.mkdir()
    watcher, hints = start(good)

    watcher.set_folders(frozenset({str(good), bad}))
    until(lambda: watcher.state()["unwatched"] == [bad])
    (good / "a").touch()
    hints.wait(good / "a")


def test_polling_sees_what_inotify_would(start: Start, tmp_path: Path) -> None:
    watcher, hints = start(tmp_path, mode="poll")
    assert watcher.state()["mode"] == "poll"

    (tmp_path / "a").write_text("1")
    hints.wait(tmp_path / "a", 20)


def test_off_watches_nothing_and_says_so(tmp_path: Path) -> None:
    watcher = Watcher(lambda path: None, "off")
    watcher.set_folders(frozenset({str(tmp_path)}))

    assert watcher.state()["mode"] == "off"
    watcher.close()


def test_a_reader_of_hints_that_raises_does_not_end_the_watch(tmp_path: Path) -> None:
    hints = Hints()

    def take(path: str) -> None:
        hints.take(path)
        raise RuntimeError("a fault of the reader")

    watcher = Watcher(take, "inotify", step=STEP)
    try:
        watcher.set_folders(frozenset({str(tmp_path)}))
        hints.wait(tmp_path)
        (tmp_path / "a").touch()
        hints.wait(tmp_path / "a")
    finally:
        watcher.close()


def test_a_storm_is_told_as_its_folder(start: Start, tmp_path: Path) -> None:
    _, hints = start(tmp_path, step=1.0)
    for n in range(3000):
        (tmp_path / f"{n}").touch()
    hints.wait(tmp_path)

    assert len(hints.seen) < 3000


def test_stopping_is_quick_and_nothing_is_hinted_afterwards(tmp_path: Path) -> None:
    hints = Hints()
    watcher = Watcher(hints.take, "inotify")
    watcher.set_folders(frozenset({str(tmp_path)}))
    hints.wait(tmp_path)
    begun = time.monotonic()
    watcher.close()
    took = time.monotonic() - begun
    hints.forget()
    (tmp_path / "a").touch()

    assert took < 0.5  # a step is 1 s
    assert hints.seen == []


LIMITED = """
import sys, threading
from stated import log
from stated.watch import Watcher
log.set_up("info", "json")
folder, mode = sys.argv[1:]
came = threading.Event()
watcher = Watcher(lambda path: came.set() if path.endswith("/a") else None, mode, step=0.02)
for _ in range(2):
    watcher.set_folders(frozenset({folder}))
    while not watcher.state()["problem"]:
        pass
print(watcher.state()["mode"], flush=True)
if mode == "auto":
    while watcher.state()["mode"] != "poll":
        pass
    open(folder + "/a", "w").close()
    assert came.wait(20)
    print("came", flush=True)
watcher.close()
"""


@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
@pytest.mark.parametrize(("mode", "then"), [("auto", "polling instead"), ("inotify", "not watching")])
def test_inotifys_limits_are_met_with_one_line(tmp_path: Path, limit: str, mode: str, then: str) -> None:
    shell = f'echo 0 > /proc/sys/user/{limit} && exec "$@"'
    command = ["unshare", "-Ur", "sh", "-c", shell, "sh", sys.executable, "-c", LIMITED, str(tmp_path), mode]
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel lets nobody make a user namespace, and the limit belongs to one")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert then in done.stderr
    assert "fs.inotify.max_user_watches" in done.stderr
    assert "came" in done.stdout or mode == "inotify"
