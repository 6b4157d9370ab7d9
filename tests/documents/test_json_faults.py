"""Every fault is found where the decoder refuses, is named for people, and costs no more than one look at the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stated.documents import json_faults, json_values
from stated.documents.json_faults import MAX_DEPTH, MAX_DIGITS, find, number_fits

TWO_LINES = '{\n  "a": [1, 2],\n  '

FAULTS = [
    # text, line, column, words of the message
    ("", 1, 1, "there is nothing here"),
    (" \r\n\t", 1, 1, "there is nothing here"),
    ("\0\0\0\n", 1, 1, "nothing but NUL bytes"),
    ('{"a": 1}\n\0\0', 2, 1, "a NUL byte here: a write was cut short"),
    ('{"a": 1', 1, 8, "the object is not closed"),
    ('{"a": [1,\n2', 2, 2, "the list of line 1 is not closed"),
    (TWO_LINES, 3, 3, "the object of line 1 is not closed"),
    (TWO_LINES + '"b"', 3, 6, "the object of line 1 is not closed"),
    (TWO_LINES + '"b": ', 3, 8, "the object of line 1 is not closed"),
    (TWO_LINES + '"b": "cut', 3, 8, "this string is not closed"),
    ('{"a": "cut\n}', 1, 7, "not closed before the end of the line"),
    ('{"a": "cut\r\n}', 1, 7, "not closed before the end of the line"),
    ('"cut \\', 1, 6, "the text ends too early, inside a string"),
    ('{"a": 1,}', 1, 8, "a comma before the closing }"),
    ("[1, ]", 1, 3, "a comma before the closing ]"),
    ('{"a": 1,, "b": 2}', 1, 9, "a comma too many"),
    ("[,1]", 1, 2, "a comma too many"),
    ('{"a": 1\n "b": 2}', 2, 2, "a comma is missing before this"),
    ("[1 2]", 1, 4, "a comma is missing before this"),
    ('{"a": [1}', 1, 9, "} closes nothing: ] must close the list of line 1"),
    ('{"a": 1]', 1, 8, "] closes nothing: } must close the object of line 1"),
    ('{"a": @}', 1, 7, "a value was expected, not @"),
    ('{"a": 1 @}', 1, 9, "a comma or } was expected, not @"),
    ('{"a" 1}', 1, 6, "a colon was expected after the key, not 1"),
    ("{a: 1}", 1, 2, "a key in double quotes was expected, not a"),
    ("{1: 1}", 1, 2, "a key in double quotes was expected, not 1"),
    ("{'a': 1}", 1, 2, "JSON writes strings in double quotes"),
    ("[1] // why", 1, 5, "JSON has no comments"),
    ("[1, # why\n2]", 1, 5, "JSON has no comments"),
    ("{} {}", 1, 4, "there is more text after the end of the value, not {"),
    ("]", 1, 1, "a value was expected, not ]"),
    ('{\n<<<<<<< HEAD\n"a": 1\n=======', 2, 1, "a conflict marker of git"),
    ('{"a": 1\n=======\n', 2, 1, "a conflict marker of git"),
    ("{\ufeff}", 1, 2, "a byte order mark inside the text"),
    ("[\u00a0]", 1, 2, "a value was expected, not the character U+00A0"),
    ('{"é": é}', 1, 7, "a value was expected, not é"),
    # Numbers and words
    ("[NaN]", 1, 2, "NaN is not JSON, though Python's json module writes it"),
    ('{"a": -Infinity}', 1, 7, "-Infinity is not JSON, though"),
    ("Infinity", 1, 1, "Infinity is not JSON, though"),
    ("[1, nan]", 1, 5, "nan is not JSON, though"),
    ("[True]", 1, 2, "JSON writes true, not True"),
    ("[None]", 1, 2, "JSON writes null, not None"),
    ("tru", 1, 1, "a value was expected, not tru"),
    ("[01]", 1, 2, "01 is not how JSON writes a number"),
    ("[+1]", 1, 2, "a value was expected, not +1"),
    ("[.5]", 1, 2, "a value was expected, not .5"),
    ("[5.]", 1, 2, "5. is not how JSON writes a number"),
    ("[1e]", 1, 2, "1e is not how JSON writes a number"),
    ("[-]", 1, 2, "- is not how JSON writes a number"),
    ("[0x10]", 1, 2, "0x10 is not how JSON writes a number"),
    ("[1_000_000_000_000_000_000_000]", 1, 2, "1_000_000_000_000... is not how JSON writes a number"),
    ("[12\0\0", 1, 4, "a NUL byte here"),
    ("[" + "1" * (MAX_DIGITS + 1) + "]", 1, 2, "this number is too long"),
    ("[-" + "1" * MAX_DIGITS + "]", 1, 2, "this number is too long"),
    ("[1e4300]", 1, 2, "this number is too long"),
    ("[1e-99999999999999999999999999]", 1, 2, "this number is too long"),
    # Strings
    (r'["\x"]', 1, 3, "a backslash in a string must be followed by one of"),
    (r'["\u12g4"]', 1, 3, "\\u needs four hexadecimal digits"),
    ('["a\tb"]', 1, 4, "a tab inside a string must be written as \\t"),
    ('["a\x07b"]', 1, 4, "the character U+0007 in a string must be escaped"),
    ('["a\0b"]', 1, 4, "a NUL byte here"),
    (r'["\ud800"]', 1, 3, "\\ud800 is half of a character pair"),
    (r'["\ud83dx"]', 1, 3, "\\ud83d is half of a character pair"),
    (r'["\uDE00"]', 1, 3, "\\uDE00 is half of a character pair"),
    (r'{"\ud800": 1}', 1, 3, "\\ud800 is half of a character pair"),
    # Depth
    ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, MAX_DEPTH + 1, "nested more than 64 levels deep"),
    ('{"a":' * 100_000, 1, 5 * MAX_DEPTH + 1, "nested more than 64 levels deep"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), FAULTS, ids=[repr(row[0][:24]) for row in FAULTS])
def test_fault(text: str, line: int, column: int, words: str) -> None:
    problem = find(text.encode())

    assert problem is not None
    assert words in problem.message
    assert (problem.line, problem.column) == (line, column)
    assert "\n" not in str(problem)
    assert str(problem).startswith(f"line {line}, column {column}: ")
    with pytest.raises(ValueError):  # noqa: PT011 - the decoder's own words do not matter
        json_values.decode(text.encode())


@pytest.mark.parametrize(
    ("body", "column", "words"),
    [
        (b"\xff\xfe{\0}\0", 1, "UTF-16"),
        (b'{"a": "caf\xe9"}', 11, "not UTF-8"),
        (b'{"a": \xe9}', 7, "not UTF-8"),
        (b"[1\xe9]", 3, "not UTF-8"),
        (b'["\xed\xa0\x80"]', 3, "not UTF-8"),
    ],
)
def test_bytes_that_are_not_utf8(body: bytes, column: int, words: str) -> None:
    problem = find(body)

    assert problem is not None
    assert words in problem.message
    assert (problem.line, problem.column) == (1, column)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        " [ ] ",
        "-0",
        "1.10",
        "1E+2",
        r'"\ud83d\ude00 \/ \u001f \u0000"',
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        "1" * MAX_DIGITS,
        "-" + "1" * (MAX_DIGITS - 1),
        "1e4299",
        "1e-4299",
        "0.001e4300",
        '{"a":{"b":[{}, [], ""]},"c":"\x7f\u2028"}\r\n',
    ],
)
def test_what_the_decoder_takes_is_no_fault(text: str) -> None:
    assert find(text.encode()) is None
    json_values.decode(text.encode())


SCRAPS = st.sampled_from(
    [*'{}[]:,"\\ \n\t\r\0-+.eE0123u/', "true", "null", "NaN", '"a"', r"\ud83d", r"\ude00", "é", "\ufeff"]
)
TEXTS = st.lists(SCRAPS, max_size=25).map("".join)
SEEDS = st.sampled_from(
    [r'{"a": [1.10, -2e5, {"b": null}], "é\u00e9\n": "\ud83d\ude00", "c": true}', '[[], {}, "", 0]\r\n']
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(SEEDS).encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(st.one_of(st.binary(max_size=2), SCRAPS.map(str.encode)))
    return bytes(body)


@given(st.one_of(TEXTS.map(str.encode), damaged(), st.binary(max_size=20)))
@settings(max_examples=600, deadline=None)
def test_finds_a_fault_exactly_where_the_decoder_refuses(body: bytes) -> None:
    try:
        json_values.decode(body)
    except ValueError:
        problem = find(body)
        assert problem is not None
        assert 1 <= problem.line <= body.count(b"\n") + 1
        assert problem.column >= 1
    else:
        assert find(body) is None


def test_every_cut_of_a_document_is_a_fault() -> None:
    text = b'{"a": [1.5, {"b": "x\\u00e9y"}], "c": true}'

    assert all(find(text[:length]) for length in range(len(text)))


@given(
    st.from_regex(r"\A-?(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{1,5})?(?:[eE][+-]?[0-9]{1,5})?\Z"),
)
@settings(deadline=None)
def test_a_number_fits_however_it_is_spelled(text: str) -> None:
    """What was read can be written: the decoder's spelling of a number fits whenever the file's did."""
    if number_fits(text):
        value = json_values.decode(text.encode())
        assert number_fits(str(value))
        json_values.decode(json_values.encode(value))


def test_the_limits_are_those_of_the_module() -> None:
    assert json_faults.MAX_DEPTH == 64
