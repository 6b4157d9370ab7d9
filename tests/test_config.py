"""`stated.config`: the file's values, and one clear line for everything it may get wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stated import config
from stated.config import Config
from stated.errors import Unavailable


def write(home: Path, text: str | bytes) -> str:
    path = Path(config.config_path(str(home)))
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(home)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert config.load(str(tmp_path)) == Config()


def test_every_member_can_be_set(tmp_path: Path) -> None:
    text = 'durability = "file"\nhistory_bytes = 0\nwatch = "off"\nlog_level = "debug"\n'

    assert config.load(write(tmp_path, text)) == Config(
        durability="file", history_bytes=0, watch="off", log_level="debug"
    )


def test_an_empty_file_one_with_comments_and_one_with_a_bom_are_fine(tmp_path: Path) -> None:
    assert config.parse(b"", "c") == config.parse(b"# nothing yet\n", "c") == Config()
    assert config.parse(b"\xef\xbb\xbfwatch = 'poll'\r\n", "c") == Config(watch="poll")


BAD = [
    ("durability = 1", r"Expected `str`, got `int`.*durability"),
    ('durability = "fast"', r"Invalid enum value 'fast'.*durability"),
    ("history_bytes = -1", r"Expected `int` >= 0.*history_bytes"),
    ("history_bytes = 1e400", r"Expected `int`.*history_bytes"),
    ("histroy = 1", r"unknown field `histroy`"),
    ("[log]\nlevel = 'info'", r"unknown field `log`"),
    ("watch = \n", r"not TOML: .*line 1"),
    ("a = 1\nwatch\n", r"not TOML: .*line 2"),
    ("a = " + "[" * 5000, r"not TOML: "),
    (b"watch = '\xff'", r"not UTF-8 at byte 9"),
    ("#" + "x" * config.MIB, r"larger than 1 MiB"),
]


@pytest.mark.parametrize(("text", "reason"), BAD, ids=range(len(BAD)))
def test_a_file_that_cannot_be_used_gives_one_line_with_reason_place_and_hint(
    tmp_path: Path, text: str | bytes, reason: str
) -> None:
    home = write(tmp_path, text)
    with pytest.raises(Unavailable) as caught:
        config.load(home)

    line = caught.value.line()
    assert line.startswith(config.config_path(home) + ": ")
    assert re.search(reason, line)
    assert "durability, history_bytes, watch, log_level" in line
    assert "\n" not in line
    assert len(line) < 500


def test_a_folder_in_the_files_place_is_one_line_too(tmp_path: Path) -> None:
    Path(config.config_path(str(tmp_path))).mkdir(parents=True)
    with pytest.raises(Unavailable, match="directory"):
        config.load(str(tmp_path))


def test_every_path_lies_in_the_home_that_is_given() -> None:
    paths = (config.state_home, config.journal_path, config.lock_path, config.conflicts_path, config.config_path)

    assert [path("/h").startswith("/h/") for path in paths] == [True] * 5


def test_every_limit_has_its_reason_beside_it() -> None:
    text = Path(config.__file__).read_text()
    limits = re.findall(r'^([A-Z_]+): Final = [^\n]+\n(""")?', text, re.MULTILINE)

    assert len(limits) > 20
    assert [name for name, reason in limits if not reason] == ["MIB"]
