"""A log is read line by line: good lines around bad ones, each with its number, every byte kept."""

from __future__ import annotations

import codecs
import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stated.documents.json_lines import Line, edit_line, encode_line, parse, replace_line
from stated.documents.json_text import NotJson, Unwritable

RUN = (
    b'{"ts":"2026-09-07T08:00:12Z","skill":"monday-briefing","calls":13,"budget":15,"verdict":"watch",'
    b'"scheduled":true,"notes":"bot stats empty"}'
)


@pytest.mark.parametrize(
    ("raw", "records", "bad", "clean"),
    [
        (None, [], {}, True),
        (b"", [], {}, True),
        (b"\n\n  \n", [], {}, True),
        (codecs.BOM_UTF8, [], {}, False),
        (b'{"a":1}\n{"b":2}\n', [(1, {"a": 1}), (2, {"b": 2})], {}, True),
        (b'{"a":1}\r\n\r\n{"b":2}\r\n', [(1, {"a": 1}), (3, {"b": 2})], {}, True),
        (codecs.BOM_UTF8 + b'{"a":1}\n', [(1, {"a": 1})], {}, True),
        (b'\n{"a":1}\n \t\n{"b":2}', [(2, {"a": 1}), (4, {"b": 2})], {}, False),
        # A torn tail, a tail of NULs, and both
        (b'{"a":1}\n{"b":', [(1, {"a": 1})], {2: "column 6: the text ends too early: the object is not closed"}, False),
        (b'{"a":1}\n{"b":"x', [(1, {"a": 1})], {2: "column 6: the text ends too early: this string is not"}, False),
        (b'{"a":1}\n\0\0\0\0', [(1, {"a": 1})], {2: "column 1: there is nothing but NUL bytes here"}, False),
        (b'{"a":1}\0\0\n{"b":2}\n', [(2, {"b": 2})], {1: "column 8: there is a NUL byte here"}, True),
        # Bad lines in the middle cost nothing but themselves
        (b'{"a":1}\nnot json\n{"b":2}\n', [(1, {"a": 1}), (3, {"b": 2})], {2: "column 1: a value was expected"}, True),
        (b'{"a":NaN}\n{"b":2}\n', [(2, {"b": 2})], {1: "column 6: NaN is not JSON"}, True),
        (b'{"a":"\xff"}\n{"b":2}\n', [(2, {"b": 2})], {1: "column 7: this is not UTF-8"}, True),
        (b'{"a":1}{"b":2}\n', [], {1: "column 8: there is more text after the end of the value"}, True),
        (b'{"a":1}\n' + codecs.BOM_UTF8 + b'{"b":2}\n', [(1, {"a": 1})], {2: "column 1: there is a byte order"}, True),
        (
            b'{"a":' * 65 + b"1" + b"}" * 65 + b"\n",
            [],
            {1: "column 321: this is nested more than 64 levels deep"},
            True,
        ),
        # JSON, but not what a log holds
        (b"12\n", [], {1: "a line must be a JSON object, and this is a number"}, True),
        (b"1.5\n", [], {1: "a line must be a JSON object, and this is a number"}, True),
        (b'[{"a":1}]\n', [], {1: "a line must be a JSON object, and this is a list"}, True),
        (b'"a"\n', [], {1: "a line must be a JSON object, and this is a string"}, True),
        (b"null\ntrue", [], {1: "and this is null", 2: "and this is true or false"}, False),
        # A value over several lines is no JSON Lines
        (b'{\n"a": 1}\n', [], {1: "column 2: the text ends too early", 2: "column 4: there is more text"}, True),
    ],
)
def test_parse(raw: bytes | None, records: Any, bad: dict[int, str], clean: bool) -> None:
    doc = parse(raw)

    assert doc.exists == (raw is not None)
    assert doc.raw == (raw or b"")
    assert doc.records == records
    assert [line.number for line in doc.bad] == list(bad)
    for line in doc.bad:
        assert bad[line.number] in (line.problem or "")
        assert line.value is None
    assert doc.ends_clean == clean


def test_a_line_is_what_stands_between_the_endings() -> None:
    doc = parse(codecs.BOM_UTF8 + b' {"a": 1.10} \r\n\r\nbad\0\r\n{"b":2}')

    assert [line.raw for line in doc.lines] == [codecs.BOM_UTF8 + b' {"a": 1.10} ', b"bad\0", b'{"b":2}']
    assert doc.lines[0] == Line(1, codecs.BOM_UTF8 + b' {"a": 1.10} ', {"a": Decimal("1.10")}, None)


def test_lines_with_a_key_given_twice() -> None:
    doc = parse(b'{"a":1}\nbad\n{"a":1,"a":2}\n')

    assert doc.records == [(1, {"a": 1}), (3, {"a": 2})]
    assert doc.duplicates == ((3, ("/a",)),)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (json.loads(RUN), RUN + b"\n"),
        ({}, b"{}\n"),
        ({"a": "é\n\u2028", "b": (Decimal("1.10"), 0.5)}, '{"a":"é\\n\u2028","b":[1.10,0.5]}\n'.encode()),
    ],
)
def test_encode_line(value: Any, line: bytes) -> None:
    assert encode_line(value) == line
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("value", [[1], 5, None, {"a": float("nan")}, {1: 2}, {"a": "\ud800"}])
def test_what_no_line_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(NotJson):
        encode_line(value)
    with pytest.raises(NotJson):
        edit_line(parse(b'{"a":null}\n'), 1, value)


@pytest.mark.parametrize(
    ("number", "value", "line"),
    [
        (1, {"id": "a", "status": "done", "impact": Decimal("1840.0")}, '{"id":"a","status":"done","impact":1840.00}'),
        (
            3,
            {"id": "b", "status": "open", "x": {"y": [1, 2]}},
            '{ "id": "b", "status" : "open", "x" : { "y" : [1, 2] } }',
        ),
        (3, {"id": "b"}, '{ "id": "b" }'),
        (5, {"a": {"b": [1, 2]}}, '{"a":{"b":[1,2]}}'),
    ],
)
def test_edit_line(number: int, value: Any, line: str) -> None:
    lines = ['{"id":"a","status":"open","impact":1840.00}', "", '{ "id": "b", "status" : "open" }', "bad", "{}", ""]
    doc = parse("\r\n".join(lines).encode())

    assert edit_line(doc, number, value) == line.encode()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (0, "there is no line 0"),
        (2, "there is no line 2"),
        (9, "there is no line 9"),
        (3, "line 3 cannot be read (column 1: a value was expected, not bad)"),
        (4, "line 4 cannot be rewritten: it gives a key twice (/a), and only one of the two could be kept"),
        (5, "line 5 cannot be read (a line must be a JSON object, and this is a number)"),
    ],
)
def test_lines_that_are_never_rewritten(number: int, reason: str) -> None:
    doc = parse(b'{"a":1}\n\nbad\n{"a":1,"a":2}\n5\n')

    with pytest.raises(Unwritable) as caught:
        edit_line(doc, number, {"a": 3})
    assert caught.value.reason == reason


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"torn", b"\0\0"])
def test_replace_line(ending: bytes, last: bytes) -> None:
    raw = ending.join([codecs.BOM_UTF8 + b'{"a":1}', b"", b"bad", b'{"b":2}', last])
    doc = parse(raw)
    for line in doc.lines:
        assert replace_line(raw, line.number, line.raw, b"new") == raw.replace(line.raw, b"new")

    assert replace_line(raw, 2, b"", b"") == raw
    assert replace_line(raw, 4, b'{"b":3}', b"new") is None
    assert replace_line(raw, 0, last, b"new") is None
    assert replace_line(raw, 6, b"", b"new") is None
    with pytest.raises(ValueError, match="one line"):
        replace_line(raw, 4, b'{"b":2}', b"a\nb")


GOOD = st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=5), st.none()), max_size=3)
LINES = st.one_of(
    GOOD.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r")),
    st.sampled_from([b"", b" ", b"\t", b"\0\0", b'{"a":', b"5", b"[]"]),
)


@given(st.lists(LINES, max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_line_is_there_with_its_bytes_and_number(lines: list[bytes], ending: bytes, ended: bool) -> None:
    doc = parse(ending.join([*lines, b""] if ended else lines))

    assert [(line.number, line.raw) for line in doc.lines] == [
        (number, line)
        for number, line in enumerate(lines, 1)
        if (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip(b" \t\r")
    ]
    assert len(doc.records) + len(doc.bad) == len(doc.lines)


@given(GOOD, GOOD)
@settings(deadline=None)
def test_an_edited_line_is_one_line_with_the_new_value(old: Any, new: Any) -> None:
    doc = parse(b"bad\n" + json.dumps(old).encode() + b"\n")
    line = edit_line(doc, 2, new)

    assert b"\n" not in line
    assert json.loads(line) == new


def test_a_hundred_thousand_lines_are_read_in_no_time() -> None:
    """A generous bound: it takes a quarter of a second here, and a quadratic reader would take minutes."""
    raw = (RUN + b"\n") * 100_000 + b"torn"
    began = time.perf_counter()
    doc = parse(raw)
    took = time.perf_counter() - began

    assert len(doc.records) == 100_000
    assert [line.number for line in doc.bad] == [100_001]
    assert took < 10
