"""An edit changes what differs and not one byte more.

The table is the specification by example. The properties below it say the same of any document: they spell a random
value in a random way (spaces, line endings, escapes, numbers), change it, and look at the result with the standard
library's scanner, which shares no code with what is tested.
"""

from __future__ import annotations

import codecs
import copy
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stated.documents.json_text import NotJson, Unwritable, dumps, edit, encode, parse

BOM = codecs.BOM_UTF8


def alike(one: Any, other: Any) -> bool:
    """Equal values of equal kinds; the order of members and the spelling of numbers do not matter."""
    if isinstance(one, tuple):
        one = list(one)
    if isinstance(other, tuple):
        other = list(other)
    if isinstance(one, float):
        one = Decimal(repr(one))
    if isinstance(other, float):
        other = Decimal(repr(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


# By example -----------------------------------------------------------------------------------------------------------

# The contract's profile as a person with an editor of their own might have left it.
PROFILE = (
    BOM
    + (
        "{\r\n"
        '    "site_id": "example-com",\r\n'
        '    "account_id": "refused",\r\n'
        '    "x_note": "caf\\u00e9 \\/ é",\r\n'
        '    "timezone":  "Europe/Madrid",\r\n'
        '    "currency": "EUR",\r\n'
        '    "x_big": 123456789012345678901234567890,\r\n'
        '    "x_rate": 1.10, "x_small": 1e-7,\r\n'
        "\r\n"
        '    "events": {\r\n'
        '        "view": "product_view",\r\n'
        '        "purchase": "purchase"\r\n'
        "    },\r\n"
        '    "product_identifier": { "key": "sku", "table": "conversion_items" },\r\n'
        '    "x_list": [1, 2,3 ],\r\n'
        '    "discovery_cached_at": "2026-09-07",\r\n'
        '    "scheduling_offered": {}\r\n'
        "}\r\n"
    ).encode()
)


def profile(**changes: Any) -> dict[str, Any]:
    return {**parse(PROFILE).value, **changes}


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        (profile(timezone="UTC"), '"Europe/Madrid"', '"UTC"'),
        (profile(x_rate=Decimal("1.2")), "1.10", "1.2"),
        (profile(x_big=1), "123456789012345678901234567890", "1"),
        (profile(x_note="é"), '"caf\\u00e9 \\/ é"', '"é"'),
        (profile(x_list=[1, 2, 4]), "2,3 ]", "2,4 ]"),
        (profile(x_list=[1, 2, 3, 4]), "2,3 ]", "2,3,4 ]"),
        (profile(x_list=(2, 3)), "[1, 2,3 ]", "[2,3 ]"),
        (
            profile(product_identifier={"key": "product_id", "table": "both", "x": [{"y": 1}]}),
            '"sku", "table": "conversion_items" }',
            '"product_id", "table": "both", "x": [{ "y": 1 }] }',
        ),
        (
            profile(events={"view": "product_view", "purchase": "buy", "checkout": None}),
            '"purchase"\r\n    }',
            '"buy",\r\n        "checkout": null\r\n    }',
        ),
        # An empty object opens as its last neighbour of the same kind is laid out.
        (profile(scheduling_offered={"a": True, "b": False}), "{}", '{ "a": true, "b": false }'),
        (profile(new=[{"a": 1}, []]), "{}\r\n}", '{},\r\n    "new": [{"a": 1}, []]\r\n}'),
    ],
)
def test_a_change_of_one_member_changes_its_bytes_only(value: Any, before: str, after: str) -> None:
    assert PROFILE.count(before.encode()) == 1

    assert edit(parse(PROFILE), value) == PROFILE.replace(before.encode(), after.encode())


def test_numbers_that_are_equal_keep_their_spelling() -> None:
    value = profile(x_rate=1.1, x_small=0.0000001, x_big=int("123456789012345678901234567890"))

    assert edit(parse(PROFILE), value) == PROFILE


EDITS = [
    # what it shows, the old text, the new value, the new text
    ("one, 1.0 and true are different", "[1, 1, 1.0]", [1, True, 1], "[1, true, 1]"),
    ("a whole float is written as one", "[1, 2]", [1, 2.0], "[1, 2.0]"),
    ("minus zero is zero", '{"a": -0, "b": 1}', {"a": 0, "b": 2}, '{"a": -0, "b": 2}'),
    ("an exponent stays", '{"a": 1e2, "b": 1}', {"a": Decimal("100"), "b": 2}, '{"a": 1e2, "b": 2}'),
    ("escapes stay", '{"\\u0061": "\\/", "b": 1}', {"a": "/", "b": 2}, '{"\\u0061": "\\/", "b": 2}'),
    ("order stays", '{"b": 1, "a": 2}', {"a": 2, "b": 3}, '{"b": 3, "a": 2}'),
    ("no newline at the end stays so", '{"a":1}', {"a": 2}, '{"a":2}'),
    ("spaces around the value stay", "\n\n [1] \n\t", [2], "\n\n [2] \n\t"),
    ("another root", '\n{"a": 1}\n', 5, "\n5\n"),
    ("a root that becomes an object", "null\n", {"a": [1]}, '{\n  "a": [\n    1\n  ]\n}\n'),
    # Removed
    ("first removed", '{"a": 1, "b": 2}', {"b": 2}, '{"b": 2}'),
    ("last removed", '{ "a": 1, "b": 2 }', {"a": 1}, '{ "a": 1 }'),
    ("middle removed", "[1,2,  3]", [1, 3], "[1,  3]"),
    ("all removed", '{\n  "a": 1\n}\n', {}, "{}\n"),
    ("removed from lines", '{\n  "a": 1,\n  "b": 2,\n  "c": 3\n}', {"a": 1, "c": 3}, '{\n  "a": 1,\n  "c": 3\n}'),
    ("last line removed", '{\n  "a": 1,\n  "b": 2\n}', {"a": 1}, '{\n  "a": 1\n}'),
    ("first line removed", '{\n  "a": 1,\n  "b": 2\n}', {"b": 2}, '{\n  "b": 2\n}'),
    # Added
    ("added to a tight object", '{"a":1}', {"a": 1, "b": [1, 2]}, '{"a":1,"b":[1,2]}'),
    ("added to a loose object", '{"a": 1}', {"a": 1, "b": [1, 2]}, '{"a": 1, "b": [1, 2]}'),
    ("added to a padded object", '{ "a": 1 }', {"a": 1, "b": {"c": 1}}, '{ "a": 1, "b": { "c": 1 } }'),
    ("added first", '{"a":1, "b":2}', {"c": 3, "a": 1, "b": 2}, '{"c":3, "a":1, "b":2}'),
    ("added after what it follows", '{"a":1, "b":2}', {"a": 1, "c": 3, "b": 2}, '{"a":1, "c":3, "b":2}'),
    ("renamed", '{"a": 1, "b": 2}', {"a": 1, "c": 2}, '{"a": 1, "c": 2}'),
    ("renamed, the only one", '{\n\t"a": 1\n}', {"c": 1}, '{\n\t"c": 1\n}'),
    ("added to lines", '{\n\t"a": 1\n}', {"a": 1, "b": {"c": 2}}, '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}'),
    ("added to an empty document", "{}\n", {"a": {"b": 1}}, '{\n  "a": {\n    "b": 1\n  }\n}\n'),
    ("added to an empty document with CRLF", "{}\r\n", {"a": 1}, '{\r\n  "a": 1\r\n}\r\n'),
    ("added to an empty list in lines", '{\n "a": []\n}', {"a": [1]}, '{\n "a": [\n  1\n ]\n}'),
    ("added to an empty list with a space", '{"a": [ ]}', {"a": [1, 2]}, '{"a": [1, 2]}'),
    ("a blank line is not repeated", "[\n 1,\n\n 2\n]", [1, 2, 3], "[\n 1,\n\n 2,\n 3\n]"),
    ("commas in front", '{\n  "a": 1\n, "b": 2\n}', {"a": 1, "b": 2, "c": 3}, '{\n  "a": 1\n, "b": 2\n, "c": 3\n}'),
    ("space before the colon", '{"a" : 1}', {"a": 1, "b": 2}, '{"a" : 1, "b" : 2}'),
    ("value below its key", '{\n  "a":\n    1\n}', {"a": 1, "b": 2}, '{\n  "a":\n    1,\n  "b": 2\n}'),
    ("a file of escapes", '{"a": "\\u00E9"}', {"a": "é", "é": "😀"}, '{"a": "\\u00E9", "\\u00e9": "\\ud83d\\ude00"}'),
    ("a file without escapes", '{"a": "b\\n"}', {"a": "é"}, '{"a": "é"}'),
    # Lists
    (
        "records of one line each",
        '[\n  {"id": 1, "x": 1.10},\n  {"id": 2, "x": 1.10}\n]',
        [{"id": 1, "x": Decimal("1.10")}, {"id": 2, "x": 2}, {"id": 3, "x": [], "y": {"z": 1}}],
        '[\n  {"id": 1, "x": 1.10},\n  {"id": 2, "x": 2},\n  {"id": 3, "x": [], "y": {"z": 1}}\n]',
    ),
    (
        "records that begin on the line of the bracket",
        '[{\n  "id": 1\n}, {\n  "id": 2\n}]',
        [{"id": 1}, {"id": 2}, {"id": 3}],
        '[{\n  "id": 1\n}, {\n  "id": 2\n}, {\n  "id": 3\n}]',
    ),
    (
        "the oldest goes, a new one comes",
        '[{"at": 1, "n": 1e1}, {"at": 2, "n": 1e1}, {"at": 3, "n": 1e1}]',
        [{"at": 2, "n": Decimal(10)}, {"at": 3, "n": Decimal(10)}, {"at": 4, "n": 0}],
        '[{"at": 2, "n": 1e1}, {"at": 3, "n": 1e1}, {"at": 4, "n": 0}]',
    ),
    (
        "one removed and another changed",
        '[{"id": "a", "n": 1.0}, {"id": "b", "n": 1.00, "m": 1}, {"id": "c"}]',
        [{"id": "b", "n": Decimal(1).quantize(Decimal("0.0")), "m": 2}, {"id": "c"}],
        '[{"id": "b", "n": 1.00, "m": 2}, {"id": "c"}]',
    ),
    ("inserted in front", "[ 2, 3]", [1, 2, 3], "[ 1, 2, 3]"),
    ("inserted in a column", "[\n 1,\n 3\n]", [1, 2, 3], "[\n 1,\n 2,\n 3\n]"),
    ("sorted", '["c",  "a", "b"]', ["a", "b", "c"], '["a", "b", "c"]'),
    ("repeated elements", "[1,1,2,1]", [1, 2, 1, 1], "[1,2,1,1]"),
    ("list to object", '{"a": [1]}', {"a": {"b": 1}}, '{"a": {"b": 1}}'),
]  # fmt: skip


@pytest.mark.parametrize(("old", "value", "new"), [row[1:] for row in EDITS], ids=[row[0] for row in EDITS])
def test_edit(old: str, value: Any, new: str) -> None:
    doc = parse(old.encode())

    assert edit(doc, value).decode() == new
    assert alike(parse(new.encode()).value, value)
    assert edit(doc, doc.value) == doc.raw


def test_what_is_read() -> None:
    doc = parse(PROFILE)

    assert doc.ok
    assert doc.exists
    assert doc.raw == PROFILE
    assert doc.value["x_big"] == 123456789012345678901234567890
    assert str(doc.value["x_rate"]) == "1.10"
    assert doc.value["x_note"] == "café / é"
    assert (doc.problem, doc.duplicates) == (None, ())


def test_an_absent_document_is_created_by_an_edit() -> None:
    doc = parse(None)

    assert (doc.exists, doc.ok, doc.raw, doc.value, doc.problem) == (False, False, b"", None, None)
    assert edit(doc, {"a": [1, "é"]}) == '{\n  "a": [\n    1,\n    "é"\n  ]\n}\n'.encode()
    assert edit(doc, {"a": [1]}, one_line=True) == b'{"a":[1]}'


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "line 1, column 1: there is nothing here"),
        (BOM, "line 1, column 1: there is nothing here"),
        (b"\n\n", "line 1, column 1: there is nothing here"),
        (BOM + b'{\r\n"a": NaN}', "line 2, column 6: NaN is not JSON, though Python's json module writes it"),
        (b'{"a": 1', "line 1, column 8: the text ends too early"),
        (BOM + BOM + b"{}", "line 1, column 1: there is a byte order mark inside the text"),
        (rb'{"a": "\ud800"}', "line 1, column 8: \\ud800 is half of a character pair"),
    ],
)
def test_what_is_not_json_is_read_as_a_problem_and_never_rewritten(raw: bytes, message: str) -> None:
    doc = parse(raw)

    assert doc.exists
    assert not doc.ok
    assert doc.raw == raw
    assert doc.value is None
    assert str(doc.problem).startswith(message)
    with pytest.raises(Unwritable, match=re.escape(f"it is not JSON ({message}")):
        edit(doc, {})


def test_a_key_given_twice_is_readable_and_never_rewritten() -> None:
    doc = parse(b'{"a": {"k/1": 1, "k/1": 2}, "b": 1}')

    assert doc.ok
    assert doc.value == {"a": {"k/1": 2}, "b": 1}
    assert doc.duplicates == ("/a/k~11",)
    with pytest.raises(Unwritable) as caught:
        edit(doc, {"a": {"k/1": 2}, "b": 2})
    assert caught.value.reason == "it gives a key twice (/a/k~11), and only one of the two could be kept"


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": {1: 2}}, {"a": "\ud800"}, {"a": {1, 2}}])
def test_what_json_cannot_hold_is_refused_by_every_writer(value: Any) -> None:
    # NaN and null, 1 and "1" look the same to an encoder that is not asked to be strict.
    for doc in (parse(None), parse(b'{"a": null}'), parse(b'{"a": {"1": 2}}')):
        with pytest.raises(NotJson, match=r"^/a: "):
            edit(doc, value)
    for write in (encode, dumps):
        with pytest.raises(NotJson, match=r"^/a: "):
            write(value)


def test_a_value_changed_in_place_is_still_compared_with_the_file() -> None:
    doc = parse(b'{"a": [1, 2]}')
    doc.value["a"].append(3)

    assert edit(doc, doc.value) == b'{"a": [1, 2, 3]}'


def test_answers_may_be_deeper_than_documents() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]

    assert parse(encode(value)).ok
    with pytest.raises(NotJson):
        encode([value])
    assert dumps({"result": {"value": value}}) == b'{"result":{"value":' + b"[" * 64 + b"1" + b"]" * 64 + b"}}"


def test_deep_and_long_documents() -> None:
    depth = 63
    doc = parse(b'{"a":' * depth + b"[" + b"1," * 5000 + b"1]" + b"}" * depth)
    value = copy.deepcopy(doc.value)
    inner = value
    for _ in range(depth - 1):
        inner = inner["a"]
    inner["a"][2500] = 2

    assert edit(doc, value) == b'{"a":' * depth + b"[" + b"1," * 2500 + b"2," + b"1," * 2499 + b"1]" + b"}" * depth


# By property ----------------------------------------------------------------------------------------------------------

KEYS = st.one_of(st.sampled_from(["a", "b", "c", "id", "name", "a:b", "é", '"', "\\"]), st.text(max_size=4))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(10**30), 10**30),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-100, max_value=100),
    st.sampled_from([Decimal("1.0"), Decimal("1E+2"), Decimal("-0.0"), Decimal("1E-7")]),
    KEYS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=12,
)
CONTAINERS = st.one_of(st.lists(VALUES, max_size=5), st.dictionaries(KEYS, VALUES, max_size=5))
SPACES = st.sampled_from(["", "", " ", "\n  ", "\r\n\t", "\n\n", "  "])


@st.composite
def spelled(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> bytes:
    """A value, with spaces, escapes and numbers spelled in any way."""

    def write_string(text: str) -> str:
        if draw(st.booleans()):
            units = text.encode("utf-16-be")
            return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'
        return json.dumps(text, ensure_ascii=draw(st.booleans()))

    def write(value: Any) -> str:
        space = draw(SPACES)
        if isinstance(value, dict):
            members = [f"{space}{write_string(key)}{draw(SPACES)}:{write(item)}" for key, item in value.items()]
            return f"{draw(SPACES)}{{{','.join(members) or space}{draw(SPACES)}}}{draw(SPACES)}"
        if isinstance(value, list):
            return f"{draw(SPACES)}[{','.join(map(write, value)) or space}]{draw(SPACES)}"
        if isinstance(value, Decimal):
            spelling = draw(st.sampled_from([str(value), str(value).lower(), f"{value:.9f}", f"{value:.8e}"]))
            return space + spelling + draw(SPACES)
        return space + (write_string(value) if isinstance(value, str) else json.dumps(value)) + draw(SPACES)

    return (BOM if draw(st.booleans()) else b"") + write(draw(values)).encode()


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """The value with some changes at some depth."""
    value = copy.copy(value)
    for _ in range(draw(st.integers(1, 3))):
        if isinstance(value, dict):
            match draw(st.sampled_from(["set", "inner", "inner", "remove", "first", "order"])):
                case "set":
                    value[draw(KEYS)] = draw(VALUES)
                case "inner" if value:
                    key = draw(st.sampled_from(list(value)))
                    value[key] = draw(changed(value[key]))
                case "remove" if value:
                    del value[draw(st.sampled_from(list(value)))]
                case "first":
                    value = {draw(KEYS): draw(VALUES)} | value
                case "order":
                    value = dict(draw(st.permutations(list(value.items()))))
        elif isinstance(value, list):
            at = draw(st.integers(0, len(value)))
            match draw(st.sampled_from(["set", "inner", "inner", "remove", "append", "order"])):
                case "set":
                    value[at : at + 1] = [draw(VALUES)]
                case "inner" if at < len(value):
                    value[at] = draw(changed(value[at]))
                case "remove":
                    del value[at : at + 1]
                case "append":
                    value.append(draw(VALUES))
                case "order":
                    value = draw(st.permutations(value))
        else:
            return draw(VALUES)
    return value


SPACE = re.compile(r"[ \t\r\n]*")
SCANNER = json.JSONDecoder(parse_float=str, parse_int=str)


def pieces(raw: bytes) -> dict[str, tuple[int, int]]:
    """Where each member of the root object begins (its key) and ends, in characters."""
    text = raw.decode()
    found: dict[str, tuple[int, int]] = {}
    position = text.index("{") + 1
    while True:
        position = text.find('"', position)
        if position < 0:
            return found
        key, colon = SCANNER.raw_decode(text, position)
        value = SPACE.match(text, text.index(":", colon) + 1)
        assert value
        _, end = SCANNER.raw_decode(text, value.end())
        found[key] = position, end
        position = end


@given(spelled())
@settings(max_examples=300, deadline=None)
def test_no_change_changes_nothing(raw: bytes) -> None:
    doc = parse(raw)

    assert doc.ok
    assert doc.duplicates == ()
    assert edit(doc, doc.value) == raw
    assert edit(doc, copy.deepcopy(doc.value)) == raw


@given(st.data(), spelled(CONTAINERS))
@settings(max_examples=300, deadline=None)
def test_an_edit_gives_the_new_value(data: st.DataObject, raw: bytes) -> None:
    doc = parse(raw)
    value = data.draw(changed(doc.value))
    after = parse(edit(doc, value))

    assert after.ok
    assert after.duplicates == ()
    assert alike(after.value, value)
    assert after.raw.startswith(BOM) == raw.startswith(BOM)
    assert edit(after, value) == after.raw


@given(st.data(), spelled(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6)))
@settings(max_examples=150, deadline=None)
def test_unchanged_members_keep_their_bytes_and_their_order(data: st.DataObject, raw: bytes) -> None:
    doc = parse(raw)
    value = data.draw(changed(doc.value))
    old_text, old_pieces = raw.decode(), pieces(raw)
    new = edit(doc, value)
    if not isinstance(value, dict):
        return
    new_text, new_pieces = new.decode(), pieces(new)
    kept = [key for key in doc.value if key in value]

    assert [key for key in new_pieces if key in doc.value] == kept
    for key in kept:
        if alike(doc.value[key], value[key]):
            assert new_text[slice(*new_pieces[key])] == old_text[slice(*old_pieces[key])]


@given(st.data(), spelled(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6)))
@settings(max_examples=150, deadline=None)
def test_every_byte_outside_a_changed_member_stays(data: st.DataObject, raw: bytes) -> None:
    doc = parse(raw)
    key = data.draw(st.sampled_from(list(doc.value)))
    new = edit(doc, {**doc.value, key: data.draw(changed(doc.value[key]))}).decode()
    text = raw.decode()
    begin, end = pieces(raw)[key]

    assert new.startswith(text[:begin])
    assert new.endswith(text[end:])
    assert len(new) >= len(text) - (end - begin)


@given(spelled(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)), VALUES)
@settings(max_examples=300, deadline=None)
def test_what_is_added_and_removed_again_leaves_no_trace(raw: bytes, value: Any) -> None:
    doc = parse(raw)
    more = edit(doc, {**doc.value, "something new": value})

    assert edit(parse(more), doc.value) == raw


PYTHON_STYLES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"indent": st.sampled_from([1, 2, 4, "\t"]), "ensure_ascii": st.booleans()}),
    st.fixed_dictionaries({"separators": st.just((",", ":"))}),
    st.just({}),
)
PYTHON_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(["x", "y", "z:"]))
PYTHON_VALUES = st.recursive(
    PYTHON_SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abcdef"), inner, max_size=4)),
    max_leaves=10,
)


@given(
    st.data(),
    st.dictionaries(st.sampled_from("abcdef"), PYTHON_VALUES, min_size=1, max_size=4),
    PYTHON_STYLES,
)
@settings(max_examples=150, deadline=None)
def test_a_file_that_python_wrote_still_looks_so(data: st.DataObject, value: Any, style: dict[str, Any]) -> None:
    doc = parse(json.dumps({"é": "é", **value}, **style).encode())
    new = edit(doc, data.draw(changed(doc.value).filter(lambda new: isinstance(new, dict) and "é" in new)))

    if style.get("ensure_ascii", True):
        assert new.isascii()
    if not re.search(rb"[0-9]\.[0-9]|[eE][+-]?[0-9]", new):
        assert new.decode() == json.dumps(json.loads(new), **style)


@given(PYTHON_VALUES)
@settings(max_examples=200, deadline=None)
def test_a_new_file_is_as_python_writes_it(value: Any) -> None:
    assert encode(value).decode() == json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    assert dumps(value).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(st.text())
@settings(deadline=None)
def test_strings_are_as_python_writes_them(text: str) -> None:
    assert dumps(text).decode() == json.dumps(text, ensure_ascii=False)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(deadline=None)
def test_floats_come_back(number: float) -> None:
    read = parse(dumps(number)).value

    assert float(read) == number
    assert alike(read, number)
