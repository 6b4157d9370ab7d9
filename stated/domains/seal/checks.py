"""The contract as checks of files on disk: for `doctor`, and for edits that others made.

A check reports; it changes nothing. What is wrong with any file of its form (bad lines, keys given twice) is not its
business. It speaks of the rows of the contract's tables (`records`), of the few rules that
join several fields, and of personal data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stated.documents.json_lines import JsonLines
from stated.documents.json_text import JsonText
from stated.domain import At, DocumentKind, Finding, TextDocument
from stated.domains.seal import personal, tables
from stated.domains.seal.baseline import mode_problems
from stated.domains.seal.property_map import has_table
from stated.domains.seal.records import (
    CONDITIONS,
    Alerts,
    Baseline,
    InstallPlan,
    Problem,
    Profile,
    Recommendation,
    problems,
)
from stated.domains.seal.runs import run_problems


def _site(at: At) -> str:
    return at.path.partition("/")[0]


def _findings(found: Iterable[Problem], line: int | None = None) -> list[Finding]:
    return [
        Finding(
            f"`{problem.field}` {problem.problem}" if problem.field else problem.problem,
            line=line,
            field=problem.field,
            hint=f"probably meant: {problem.meant}" if problem.meant else "",
        )
        for problem in found
    ]


def _personal(value: Any, names: frozenset[str] = frozenset()) -> Iterator[Problem]:
    seen = personal.screen(value, names=names)
    for hit in seen.refused:
        yield Problem(hit.field, f"{hit.problem}: state never holds personal data")
    for hit in seen.warned:
        yield Problem(hit.field, hit.problem)


def _object(doc: JsonText) -> tuple[Mapping[str, Any] | None, list[Problem]]:
    """The object that a file holds, and the list for what is found in it."""
    if not isinstance(doc.value, dict):
        return None, [Problem("", "is not a JSON object")]
    return doc.value, []


def _place(value: Mapping[str, Any], at: At) -> Iterator[Problem]:
    if isinstance(value.get("site_id"), str) and value["site_id"] != _site(at):
        yield Problem("site_id", "names another site than its folder", _site(at))


EVENT_NAMES = frozenset(("events", "thresholds", "scheduling_offered"))


def check_profile(doc: JsonText, at: At) -> Sequence[Finding]:
    value, found = _object(doc)
    if value is not None:
        # A name of an old release is a finding; any other unknown field is somebody's own and kept.
        known = [name for name in value if name not in tables.PROFILE_RENAMED]
        found += problems(Profile, value, renamed=tables.PROFILE_RENAMED, known=known)
        found += [*_place(value, at), *_personal(value, EVENT_NAMES)]
    return _findings(found)


def check_runs(doc: JsonLines, at: At) -> Sequence[Finding]:
    return [
        finding
        for number, value in doc.records
        for finding in _findings([*run_problems(value), *_personal(value)], number)
    ]


def check_recommendations(doc: JsonLines, at: At) -> Sequence[Finding]:
    findings: list[Finding] = []
    first: dict[str, int] = {}
    for number, value in doc.records:
        findings += _findings([*_recommendation_problems(value), *_personal(value)], number)
        if isinstance(value.get("id"), str):
            earlier = first.setdefault(value["id"], number)
            if earlier != number:
                findings += _findings([Problem("id", f"is the same as in line {earlier}")], number)
    return findings


def _recommendation_problems(value: Mapping[str, Any]) -> list[Problem]:
    known = [name for name in value if name not in tables.RECOMMENDATION_RENAMED]
    found = problems(Recommendation, value, renamed=tables.RECOMMENDATION_RENAMED, known=known)
    if "impact_eur_month" not in value and "impact_month" not in value:
        found.append(Problem("impact_eur_month", "is missing"))
    if "baseline" in value and value["baseline"] == value.get("target"):
        found.append(Problem("target", "is the baseline: nothing could ever verify it"))
    return found


def check_baseline(doc: JsonText, at: At) -> Sequence[Finding]:
    value, found = _object(doc)
    if value is not None:
        found += problems(Baseline, value)
        found += mode_problems(value)
        found += [*_place(value, at), *_personal(value)]
    return _findings(found)


def check_alerts(doc: JsonText, at: At) -> Sequence[Finding]:
    if isinstance(doc.value, list):
        return _findings(
            [Problem("", "is a bare list; its rules are read, but the contract has {site_id, rules}", "rules")]
        )
    value, found = _object(doc)
    if value is not None:
        found += [*problems(Alerts, value), *_place(value, at), *_personal(value)]
        rules = value.get("rules")
        for index, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict):
                found += _rule_problems(rule, f"rules[{index}].")
    return _findings(found)


def _rule_problems(rule: Mapping[str, Any], prefix: str) -> Iterator[Problem]:
    """What a rule's family asks of its other fields."""
    family, condition = rule.get("family"), rule.get("condition")
    if isinstance(family, str) and family in CONDITIONS and isinstance(condition, dict):
        allowed = CONDITIONS[family]
        if len(condition) != 1 or not allowed.issuperset(condition):
            yield Problem(
                f"{prefix}condition", f"of the family {family} must hold {' or '.join(sorted(allowed))} alone"
            )
    if family in ("silence", "drop") and rule.get("active_hours") is None:
        yield Problem(f"{prefix}active_hours", f"is missing in the family {family}")
    if family in ("drop", "spike") and rule.get("expected") is None:
        yield Problem(f"{prefix}expected", f"is missing in the family {family}: nothing can be compared")


def check_plan(doc: JsonText, at: At) -> Sequence[Finding]:
    value, found = _object(doc)
    if value is not None:
        found += problems(InstallPlan, value, known=list(value))
        # The plan itself names properties such as `order_id`; the words around it are a person's.
        found += _personal({name: member for name, member in value.items() if name != "plan"})
    return _findings(found)


def check_map(doc: TextDocument, at: At) -> Sequence[Finding]:
    try:
        text = doc.raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = doc.raw[: error.start].count(b"\n") + 1
        return [Finding("is not UTF-8 text", line=line, hint="save the file as UTF-8")]
    findings = []
    if not has_table(text):
        findings.append(Finding("holds no table: the inventory of properties is missing", hint="run property-explorer"))
    for number, row in enumerate(text.splitlines(), 1):
        findings += _findings(_personal(row), number)
    return findings


DOCUMENTS = (
    DocumentKind("profile", f"*/{tables.PROFILE}", "json", "What is known of a site", check_profile),
    DocumentKind("runs", f"*/{tables.RUNS}", "lines", "Runs of skills", check_runs),
    DocumentKind(
        "recommendations", f"*/{tables.RECOMMENDATIONS}", "lines", "Recommendations and what came of them",
        check_recommendations,
    ),
    DocumentKind("property-map", f"*/{tables.PROPERTY_MAP}", "text", "The site's properties, for people", check_map),
    DocumentKind("watchdog-baseline", f"*/{tables.BASELINE}", "json", "What a normal hour looks like", check_baseline),
    DocumentKind("alerts", f"*/{tables.ALERTS}", "json", "Alert rules", check_alerts),
    DocumentKind("install-plan", f"*/{tables.PLAN}", "json", "The approved install plan", check_plan),
)  # fmt: skip
