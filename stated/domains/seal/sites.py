"""Where the state is, and which site a call speaks of.

`locate` reads no file. A relative directory counts from the caller's own, `~` is the caller's HOME, and a session that
was announced a directory of its own is never sent to the default one: fixture data reached a real home that way twice.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from typing import Final

from stated.domain import At, Caller, Context, Docs, Location, Refused, Unavailable
from stated.domains.seal.records import is_site
from stated.domains.seal.tables import KNOWN_FILES

VARIABLE: Final = "SEAL_COPILOT_STATE_DIR"
NO_STATE: Final = "SEAL_COPILOT_NO_STATE"
SITE_VARIABLE: Final = "SEALMETRICS_SITE_ID"
DEFAULT: Final = ".seal-copilot"
MANIFEST: Final = ".claude-plugin/plugin.json"

FOLDERS_SEEN: Final = 200
"""How many folders of a state directory are looked into to tell sites from other folders: a variable that points at a
home directory must not make a call read all of it."""

_OWN_DIRECTORY: Final = re.compile(r".*~[0-9a-f]{8}", re.DOTALL)
"""The token of a session whose announced directory was not the default one."""


def locate(caller: Caller, announced: str | None) -> Location:
    """The state directory: the variable, else what was announced to the caller's session, else `~/.seal-copilot`."""
    home = caller.home
    given = caller.env.get(VARIABLE, "")
    if given:
        location = Location(_absolute(given, caller), "env")
    elif announced is not None:
        location = Location(announced, "announced")
    elif _OWN_DIRECTORY.fullmatch(caller.env.get("STATED_SESSION", "")):
        raise Unavailable(
            "the state directory that was announced to this session is no longer known",
            where="seal",
            hint=f"set {VARIABLE} to the directory that the session's start announced",
        )
    elif not home.startswith("/"):
        raise Unavailable("the caller has no HOME", where="seal", hint=f"set HOME or {VARIABLE}")
    else:
        location = Location(posixpath.join(_clean(home), DEFAULT), "default")
    plugin = caller.env.get("CLAUDE_PLUGIN_ROOT", "")
    if plugin and plugin != "/" and _inside(location.root, _absolute(plugin, caller, "CLAUDE_PLUGIN_ROOT")):
        raise _in_plugin(location)
    return location


def _absolute(given: str, caller: Caller, variable: str = VARIABLE) -> str:
    # A line break in a path would be a second line of the announcement; a lone surrogate cannot be written as JSON.
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in given):
        raise Refused(f"{variable} holds characters that are no part of a readable name", where="seal")
    path = given
    if path == "~" or path.startswith("~/"):
        if not caller.home.startswith("/"):
            raise Unavailable(f"{variable} begins with ~ and the caller has no HOME", where="seal", hint="set HOME")
        path = caller.home + path[1:]
    elif path.startswith("~"):
        raise Refused(f"{variable} names another user's home", where="seal", hint="write the directory out")
    if not path.startswith("/"):
        if caller.cwd is None or not caller.cwd.startswith("/"):
            raise Unavailable(
                f"{variable} is relative and the caller's directory is not known", where="seal", hint="make it absolute"
            )
        path = posixpath.join(caller.cwd, path)
    return _clean(path)


def _clean(path: str) -> str:
    # A path that begins with exactly two slashes keeps them in normpath; here they mean one.
    return "/" + posixpath.normpath(path).lstrip("/")


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _in_plugin(location: Location | None = None) -> Refused:
    variable = f"{VARIABLE} points" if location is None or location.origin == "env" else "the state directory points"
    return Refused(
        f"{variable} into a plugin's own folder, which is replaced at the next update",
        where="seal",
        hint=f"set {VARIABLE} to a directory of your own, or leave it out for ~/{DEFAULT}",
    )


def refuse_plugin(docs: Docs, root: str, site: str) -> None:
    """Before the first file of a site is made: refuse a root that lies in a folder with a plugin manifest."""
    if docs.exists(At(root, site)):
        return
    folder = root
    while True:
        if docs.exists(At(folder, MANIFEST)):
            raise _in_plugin()
        if folder == "/":
            return
        folder = posixpath.dirname(folder)


# Sites --------------------------------------------------------------------------------------------------------------


def folders(docs: Docs, root: str) -> tuple[str, ...]:
    """The folders of a root that could be sites by their name; no more than `FOLDERS_SEEN`."""
    names = (name[:-1] for name in docs.folder(At(root, "")) if name.endswith("/"))
    return tuple(name for name in names if is_site(name))[:FOLDERS_SEEN]


def is_used(docs: Docs, root: str, site: str) -> bool:
    """Whether a folder holds a document of the contract: a folder of any other kind is not a site."""
    return not KNOWN_FILES.isdisjoint(docs.folder(At(root, site)))


def sites(docs: Docs, root: str) -> tuple[str, ...]:
    return tuple(name for name in folders(docs, root) if is_used(docs, root, name))


def site_of(docs: Docs, given: str | None, context: Context) -> str:
    """The site of a call: the one it names, else SEALMETRICS_SITE_ID, else the only one there is. Refuses otherwise."""
    site = known_site(docs, given, context)
    if site is None:
        raise Refused("no site is known here yet", where="--site", hint=f"name it with --site, or set {SITE_VARIABLE}")
    return site


def known_site(docs: Docs, given: str | None, context: Context) -> str | None:
    """As `site_of`, but None where no site is named and there is none in the root: to a reader that is an answer."""
    default = context.caller.env.get(SITE_VARIABLE, "")
    for name, value in (("--site", given), (SITE_VARIABLE, default or None)):
        if value is not None:
            if not is_site(value):
                raise Refused(
                    "a site id has 1 to 128 letters, digits, `.`, `_` or `-`, and no dot at its start", where=name
                )
            return value
    found = sites(docs, context.root)
    if len(found) > 1:
        shown = ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "")
        raise Refused(
            f"there are {len(found)} sites: {shown}",
            where="--site",
            hint=f"name one with --site, or set {SITE_VARIABLE}",
            data={"sites": list(found[:20])},
        )
    return found[0] if found else None


def skill_of(given: str | None, context: Context) -> str | None:
    """The skill that calls: `--skill`, else STATED_SKILL."""
    return given if given is not None else context.caller.env.get("STATED_SKILL") or None


def place(context: Context, site: str, document: str) -> At:
    return At(context.root, f"{site}/{document}")
