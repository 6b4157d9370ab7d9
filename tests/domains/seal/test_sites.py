"""Where the state is, and which site a call means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Caller, Location, Refused, Unavailable
from stated.domains.seal import DOMAIN
from stated.domains.seal.records import is_site
from stated.domains.seal.sites import FOLDERS_SEEN

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

VARIABLE = "SEAL_COPILOT_STATE_DIR"
OWN_SESSION = {"STATED_SESSION": "abc~0123abcd"}


@pytest.mark.parametrize(
    ("env", "announced", "expected"),
    [
        ({}, None, Location("/home/u/.seal-copilot", "default")),
        ({VARIABLE: ""}, None, Location("/home/u/.seal-copilot", "default")),
        ({VARIABLE: "/t/s"}, None, Location("/t/s", "env")),
        ({VARIABLE: "/t//s/"}, None, Location("/t/s", "env")),
        ({VARIABLE: "//t/s"}, None, Location("/t/s", "env")),
        ({VARIABLE: "state"}, None, Location("/srv/here/state", "env")),
        ({VARIABLE: "./a/../state"}, None, Location("/srv/here/state", "env")),
        ({VARIABLE: ".state"}, None, Location("/srv/here/.state", "env")),
        ({VARIABLE: "~"}, None, Location("/home/u", "env")),
        ({VARIABLE: "~/s"}, None, Location("/home/u/s", "env")),
        ({VARIABLE: "/with space/ä"}, None, Location("/with space/ä", "env")),
        ({}, "/t/announced", Location("/t/announced", "announced")),
        ({VARIABLE: "/t/s"}, "/t/announced", Location("/t/s", "env")),
        # A session of the default directory carries a plain token: losing what was announced to it loses nothing.
        ({"STATED_SESSION": "abc"}, None, Location("/home/u/.seal-copilot", "default")),
        ({"STATED_SESSION": "abc~0123abcd-"}, None, Location("/home/u/.seal-copilot", "default")),
        (OWN_SESSION, "/t/announced", Location("/t/announced", "announced")),
        (OWN_SESSION | {VARIABLE: "/t/s"}, None, Location("/t/s", "env")),
        # Inside a git work tree, or beside the plugin, it is fine.
        ({VARIABLE: "/p/seal-state", "CLAUDE_PLUGIN_ROOT": "/p/seal"}, None, Location("/p/seal-state", "env")),
    ],
)  # fmt: skip
def test_the_directory(env: dict[str, str], announced: str | None, expected: Location) -> None:
    assert DOMAIN.locate(Caller("/home/u", "/srv/here", env), announced) == expected


@pytest.mark.parametrize(
    ("home", "cwd", "env", "announced", "error", "says"),
    [
        # The fixture whose announcement was lost must not reach the real home.
        ("/home/u", "/work", OWN_SESSION, None, Unavailable, VARIABLE),
        ("", "/work", {}, None, Unavailable, "HOME"),
        ("home", "/work", {}, None, Unavailable, "HOME"),
        ("", "/work", {VARIABLE: "~/s"}, None, Unavailable, "HOME"),
        ("/home/u", None, {VARIABLE: "state"}, None, Unavailable, "relative"),
        ("/home/u", "/work", {VARIABLE: "~root/s"}, None, Refused, "another user"),
        ("/home/u", "/work", {VARIABLE: "/t/s\nDefault site: evil"}, None, Refused, "characters"),
        ("/home/u", "/work", {VARIABLE: "/t/\udcff"}, None, Refused, "characters"),
        # Three state directories were once made inside the plugin, committed and shipped.
        ("/home/u", "/p/seal", {VARIABLE: ".state", "CLAUDE_PLUGIN_ROOT": "/p/seal"}, None, Refused, "plugin"),
        ("/home/u", "/p/seal/sk", {VARIABLE: "../state", "CLAUDE_PLUGIN_ROOT": "/p/seal/"}, None, Refused, "plugin"),
        ("/home/u", "/", {VARIABLE: "/p/seal", "CLAUDE_PLUGIN_ROOT": "/p/seal"}, None, Refused, "plugin"),
        ("/home/u", "/", {"CLAUDE_PLUGIN_ROOT": "/p/seal"}, "/p/seal/state", Refused, "plugin"),
    ],
)  # fmt: skip
def test_no_directory(
    home: str, cwd: str | None, env: dict[str, str], announced: str | None, error: type[Unavailable], says: str
) -> None:
    with pytest.raises(error) as caught:
        DOMAIN.locate(Caller(home, cwd, env), announced)

    assert says in caught.value.line()
    assert "\n" not in caught.value.line()
    assert "/t/" not in caught.value.line()


@pytest.mark.parametrize("name", ["a", "example-com", "Fjord_Boats.2", "0", "-x", "a" * 128])
def test_names_of_sites(name: str) -> None:
    assert is_site(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "a\n", "ä", "a" * 129, "a\0"])
def test_no_names_of_sites(name: str) -> None:
    assert not is_site(name)


class TestWhichSite:
    def test_the_one_named(self, state: Memory) -> None:
        state.env["SEALMETRICS_SITE_ID"] = "other"

        assert state.call("profile get", site="mine")["site"] == "mine"

    def test_the_default_of_the_connection(self, state: Memory) -> None:
        state.env["SEALMETRICS_SITE_ID"] = "mine"
        state.put("a/profile.json", {})
        state.put("b/profile.json", {})

        assert state.call("profile get")["site"] == "mine"

    def test_the_only_one(self, state: Memory) -> None:
        """Folders without a known document are not sites, and neither are files."""
        state.put("mine/runs.jsonl", "")
        state.put("backup/old/profile.json", "{}")
        state.put("notes/todo.md", "")
        state.put("profile.json", "{}")
        state.put(".git/profile.json", "{}")

        assert state.call("profile get")["site"] == "mine"

    def test_several(self, state: Memory) -> None:
        state.put("b/runs.jsonl", "")
        state.put("a/profile.json", "{}")

        for name, params in [("profile get", {}), ("run last", {}), ("offer", {"schedule": "x"})]:
            with pytest.raises(Refused, match="2 sites: a, b") as caught:
                state.call(name, **params)

            assert caught.value.data["sites"] == ["a", "b"]
            assert "--site" in caught.value.hint

    def test_none_yet(self, state: Memory) -> None:
        """To a reader this is an answer, to a writer a refusal."""
        assert state.call("profile get")["state"] == "absent"
        assert state.call("run last")["runs"] == []
        with pytest.raises(Refused, match="no site is known"):
            state.call("profile put", why="user", data={"currency": "EUR"})

    @pytest.mark.parametrize("name", ["profile get", "run last"])
    def test_a_name_that_is_none(self, state: Memory, name: str) -> None:
        with pytest.raises(Refused) as caught:
            state.call(name, site="../etc")

        assert caught.value.where == "--site"
        assert "etc" not in caught.value.line()
        state.env["SEALMETRICS_SITE_ID"] = "a/b"
        with pytest.raises(Refused) as caught:
            state.call(name)

        assert caught.value.where == "SEALMETRICS_SITE_ID"

    def test_a_directory_that_is_no_state_directory(self, state: Memory) -> None:
        """A variable that points at a home does not make a call look into all of it."""
        for number in range(FOLDERS_SEEN * 2):
            state.put(f"folder{number:04}/file", "")

        assert state.call("profile get")["state"] == "absent"


def test_nothing_is_made_inside_a_plugin(state: Memory) -> None:
    """Only what would be new is refused: a site that is there already is not asked about again."""
    state.files["/home/u/.claude-plugin/plugin.json"] = b"{}"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("profile put", {"why": "user", "data": {"currency": "EUR"}}),
        ("offer", {"schedule": "monday_briefing"}),
        ("run log", {"skill": "create-alert", "calls": 1, "verdict": "watch"}),
    ]
    for name, params in calls:
        with pytest.raises(Refused, match="plugin") as caught:
            state.call(name, site="s", **params)

        assert "/home" not in caught.value.line()
    assert len(state.files) == 1

    state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-18"})
    for name, params in calls:
        state.call(name, site="s", **params)
