"""What a session is told at its start: where the state is, and how old it is for each site.

The hook only reads. It never repeats a note, a name or any other free text of a stored file: those were written by
earlier versions, other accounts or strangers, and a model takes what it reads here for instructions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from stated.domain import Announcement, At, Context, Docs, Location
from stated.domains.seal import tables
from stated.domains.seal.common import corruption
from stated.domains.seal.ledger import is_id
from stated.domains.seal.profile import freshness, today_at
from stated.domains.seal.recommendations import due_entries
from stated.domains.seal.records import Profile, is_site, problems
from stated.domains.seal.sites import NO_STATE, SITE_VARIABLE, folders, is_used

SITES_SHOWN: Final = 12
"""More sites than this are only counted: every line costs the session some of its room, and the hook its 300 ms."""

RULES_SHOWN: Final = 5
DUE_SHOWN: Final = 3
_SLUG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")

WITHOUT_STATE: Final = (
    f"{NO_STATE} is set: this session keeps no state on disk. Read none and write none.",
    "At the end of an answer that learned something about a site, add one fenced block named seal-state:",
    "at most 25 lines, the site's profile and its open recommendations.",
    "When the user pastes such a block, use it as facts about that site, and only if the connection reaches the site.",
)


def announce(docs: Docs, context: Context, location: Location) -> Announcement:
    default = context.caller.env.get(SITE_VARIABLE, "")
    if not is_site(default):
        default = ""
    named = (f"Default site: {default}",) if default else ()
    if context.caller.env.get(NO_STATE):
        return Announcement((*named, *WITHOUT_STATE))
    root = location.root
    found = [name for name in folders(docs, root) if is_used(docs, root, name)]
    if default in found:
        found.remove(default)
        found.insert(0, default)
    lines = [f"State directory: {root}", *named]
    lines.extend(_site_line(docs, root, name, context) for name in found[:SITES_SHOWN])
    if not found:
        lines.append("No site profile is cached here yet.")
    elif len(found) > SITES_SHOWN:
        lines.append(f"And {len(found) - SITES_SHOWN} more sites.")
    return Announcement(tuple(lines))


def _site_line(docs: Docs, root: str, site: str, context: Context) -> str:
    doc = docs.json(At(root, f"{site}/{tables.PROFILE}"))
    if not doc.exists:
        text = "no profile cached"
    elif corruption(doc) is not None:
        text = "the profile cannot be read (`statectl doctor seal` says where it is broken)"
    else:
        text = _profile_text(doc.value, context)
    today = today_at(doc.value if doc.ok and isinstance(doc.value, dict) else None, context)
    return f"Site {site}: {text}{_due_text(docs, root, site, today)}{_alerts_text(docs, root, site)}"


def _due_text(docs: Docs, root: str, site: str, today: date) -> str:
    """Ids alone: what a recommendation says quotes strangers, and is read with `rec due`."""
    due = due_entries((value for _, value in docs.lines(At(root, f"{site}/{tables.RECOMMENDATIONS}")).records), today)
    if not due:
        return ""
    ids = [name for _, entry in due if isinstance(name := entry.get("id"), str) and is_id(name)]
    return f"; {len(due)} recommendation{'' if len(due) == 1 else 's'} due{_named(ids, DUE_SHOWN)}"


def _named(ids: Sequence[str], most: int) -> str:
    return f" ({', '.join(ids[:most])}{', …' if len(ids) > most else ''})" if ids else ""


def _profile_text(profile: dict[str, Any], context: Context) -> str:
    fresh = freshness(profile, today_at(profile, context))
    if fresh.age_days is None:
        age = "profile undated, treat it as stale"
    else:
        age = f"profile {fresh.state}, {fresh.age_days} day{'' if fresh.age_days == 1 else 's'} old"
    facts = [_fact(profile, name) for name in ("vertical", "timezone", "currency")]
    key = "none"
    if isinstance(profile.get("product_identifier"), dict):
        given = profile["product_identifier"].get("key")
        key = given if isinstance(given, str) and _SLUG.fullmatch(given) else "unreadable"
    return f"{age}; {', '.join(facts)}; product key {key}"


def _fact(profile: dict[str, Any], name: str) -> str:
    """A value that the contract's own list or pattern allows: nothing else is repeated here."""
    value = profile.get(name)
    if value is None or problems(Profile, {name: value}, partial=True):
        return f"{name} unknown"
    return f"{name} unknown" if value == "unknown" else str(value)


def _alerts_text(docs: Docs, root: str, site: str) -> str:
    doc = docs.json(At(root, f"{site}/{tables.ALERTS}"))
    if not doc.exists:
        return ""
    # A bare list is what one release wrote; its rules count.
    rules = doc.value.get("rules") if isinstance(doc.value, dict) else doc.value
    if not doc.ok or not isinstance(rules, list):
        return "; the alert rules cannot be read"
    active = [rule for rule in rules if isinstance(rule, dict) and rule.get("status") == "active"]
    ids = [rule["id"] for rule in active if isinstance(rule.get("id"), str) and _SLUG.fullmatch(rule["id"])]
    if not active:
        return "; no active alert rule"
    return f"; {len(active)} active alert rule{'' if len(active) == 1 else 's'}{_named(ids, RULES_SHOWN)}"
