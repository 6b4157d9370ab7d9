"""`stated.log`: nothing that is logged, and nowhere that it is logged to, can hurt the caller."""

from __future__ import annotations

import json
import logging
import os
import pty
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stated import log
from stated.config import LOG_LINE

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    """Logging into a file, and a function that reads its lines."""
    file = tmp_path / "log"
    with file.open("wb") as handle:
        log.set_up("debug", "json", handle.fileno())
        yield lambda: [json.loads(line) for line in file.read_bytes().splitlines()]
        log.silence()


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("a broken repr")

    __str__ = __repr__


class Trick(str):
    def __str__(self) -> str:
        raise RuntimeError("a broken str")

    def isprintable(self) -> bool:
        raise RuntimeError("a broken isprintable")


def test_a_line_is_one_json_object_with_time_level_logger_and_event_first(lines: Lines) -> None:
    log.get_logger("stated.here").bind(root="/r").info(
        "written", rev=7, ms=1.5, files=["a", "b"], sure=True, nothing=None
    )

    (line,) = lines()
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "stated.here",
        "event": "written",
        "root": "/r",
        "rev": 7,
        "ms": 1.5,
        "files": ["a", "b"],
        "sure": True,
        "nothing": None,
    }


ODD: list[tuple[Any, Any]] = [
    (2**64, "<an integer of 65 bits>"),
    (10**5000, "<an integer of 16610 bits>"),
    (-(2**63), -(2**63)),
    (float("nan"), "nan"),
    (float("-inf"), "-inf"),
    ("\ud800", "\\ud800"),
    (os.fsdecode(b"/caf\xe9"), "/caf\\udce9"),
    (b"/caf\xe9", "/caf\\udce9"),
    ("two\nlines\x1b[31m", "two\\nlines\\x1b[31m"),
    ("é✓", "é✓"),
    ("x" * 500, "x" * 300 + "…"),
    (Broken(), "<Broken>"),
    (Trick("plain"), "plain"),
    ({"a": 1}, "<dict>"),
    ([[[1]]], ["<list>"]),
    (range(3), "<range>"),
]


@pytest.mark.parametrize(("value", "written"), ODD, ids=range(len(ODD)))
def test_any_value_comes_out_as_something_plain(lines: Lines, value: object, written: object) -> None:
    log.get_logger("t").info("odd", value=value)

    assert lines()[0]["value"] == written


def test_a_value_named_like_a_part_of_the_line_does_not_raise(lines: Lines) -> None:
    log.get_logger("t").info("said", event="other", level="other", logger="other", timestamp="other", method_name="x")

    assert len(lines()) == 1


def test_a_list_that_holds_itself_and_a_line_that_is_too_long_are_cut(lines: Lines) -> None:
    loop: list[Any] = []
    loop.append(loop)
    log.get_logger("t").info("loop", loop=loop)
    log.get_logger("t").info("long", **{f"v{n}": "x" * 200 for n in range(50)})

    first, second = lines()
    assert first["loop"] == ["<list>"]
    assert (second["event"], second["cut"] > LOG_LINE) == ("long", True)


def test_what_even_our_own_processors_cannot_take_becomes_a_smaller_line(lines: Lines) -> None:
    class Number(int):
        def __le__(self, other: object) -> bool:
            raise RuntimeError("a broken number")

        def __gt__(self, other: object) -> bool:
            raise RuntimeError("a broken number")

        __ge__ = __lt__ = __gt__

    log.get_logger("t").info("broken", value=Number(1))

    assert lines() == [{"level": "info", "event": "a log line could not be made", "why": "RuntimeError"}]


def test_an_exception_is_told_by_type_and_places_without_its_text(lines: Lines) -> None:
    def reads_state() -> None:
        raise KeyError("a customer's name")

    try:
        try:
            reads_state()
        except KeyError as inner:
            raise ValueError("the whole profile") from inner
    except ValueError:
        log.get_logger("t").exception("failed", call="c1")

    (line,) = lines()
    assert line["exception"] == "ValueError < KeyError"
    assert line["at"][0].startswith("test_log.py:")
    assert line["level"] == "error"
    assert "customer" not in json.dumps(line)
    assert "profile" not in json.dumps(line)


def test_an_os_error_also_tells_its_number(lines: Lines) -> None:
    log.get_logger("t").warning("failed", exc_info=OSError(28, "text", "/path"))

    assert lines()[0]["errno"] == "28 No space left on device"


def test_levels_below_the_one_asked_for_are_left_out(lines: Lines) -> None:
    with open(os.devnull, "wb") as null:
        log.set_up("warning", "json", null.fileno())
        log.get_logger("t").info("no")
        log.set_up("warning", "json", null.fileno())
    assert lines() == []


def test_the_standard_librarys_loggers_go_the_same_way_without_their_arguments(lines: Lines) -> None:
    logging.getLogger("some.library").error("got %s from %s", "a customer's name", "x")
    logging.getLogger("some.library").error(ValueError("a customer's name"))
    logging.getLogger("some.library").error("first line\nsecond a customer's name")
    logging.getLogger("watchfiles.main").info("3 changes detected: a customer's name")

    events = [(line["logger"], line["level"], line["event"]) for line in lines()]
    assert events == [
        ("some.library", "error", "got %s from %s"),
        ("some.library", "error", "ValueError"),
        ("some.library", "error", "first line"),
    ]
    assert "customer" not in json.dumps(lines())


def test_nothing_is_written_before_set_up(capfd: pytest.CaptureFixture[str]) -> None:
    log.get_logger("t").error("unheard")

    assert capfd.readouterr() == ("", "")


def drops(fd: int) -> int:
    before = log.dropped()
    log.set_up("info", "json", fd)
    try:
        log.get_logger("t").info("into the void")
    finally:
        log.silence()
    return log.dropped() - before


def test_a_reader_that_went_away_costs_the_line_only() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert drops(writer) == 1
    finally:
        os.close(writer)
    assert drops(writer) == 1  # a descriptor that is closed


def test_a_full_disk_costs_the_line_only() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        assert drops(full.fileno()) == 1


def test_a_reader_that_does_not_read_blocks_nobody_and_hears_how_much_it_missed() -> None:
    reader, writer = os.pipe()
    try:
        before = log.dropped()
        log.set_up("info", "json", writer)
        logger = log.get_logger("t")
        for n in range(2000):
            logger.info("many", n=n, padding="x" * 200)
        missed = log.dropped() - before
        os.read(reader, 1 << 20)
        logger.info("after")
        rest = [json.loads(line) for line in os.read(reader, 1 << 20).splitlines()]
    finally:
        log.silence()
        os.close(reader)
        os.close(writer)

    assert missed > 1000
    assert [line["event"] for line in rest] == ["log lines were dropped", "after"]
    assert rest[0]["count"] >= missed


def test_lines_of_many_threads_do_not_mix(lines: Lines) -> None:
    def write(name: str) -> None:
        for n in range(200):
            log.get_logger(name).info("line", n=n)

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted((line["logger"], line["n"]) for line in lines()) == [
        (f"t{i}", n) for i in range(8) for n in range(200)
    ]


def test_a_terminal_gets_text_without_control_characters_of_values() -> None:
    master, slave = pty.openpty()
    try:
        log.set_up("info", None, slave)
        log.get_logger("t").info("written", path="/a\x1b]0;title\x07")
        text = os.read(master, 4096).decode()
    finally:
        log.silence()
        os.close(master)
        os.close(slave)

    assert "written" in text
    assert "\\x1b]0;title\\x07" in text
    assert "\x1b]0" not in text
