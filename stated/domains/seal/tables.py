"""The tables of the contract: files, lifetimes, verdicts, ceilings, and the names that real runs wrote by mistake.

Everything here is data. The shapes of the records are in `records`, the patterns for personal data in `personal`; the
rules that use these tables are in the module of their file.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

PROFILE: Final = "profile.json"
RUNS: Final = "runs.jsonl"
RECOMMENDATIONS: Final = "recommendations.jsonl"
PROPERTY_MAP: Final = "property-map.md"
BASELINE: Final = "watchdog-baseline.json"
ALERTS: Final = "alerts.json"
PLAN: Final = "install-plan.json"

KNOWN_FILES: Final = frozenset((PROFILE, RUNS, RECOMMENDATIONS, PROPERTY_MAP, BASELINE, ALERTS, PLAN))
"""A folder below the state directory is a site when it holds one of these, whatever its name."""

PROFILE_DAYS: Final = 7
"""A profile is fresh up to and including this age."""

MAP_DAYS: Final = 30
"""A property map is fresh up to and including this age."""

BASELINE_DAYS: Final = 30
"""From a calibration to its expiry; the day of expiry itself still counts."""

EXTENSION_DAYS: Final = 14
"""What an inconclusive check adds to `verify_on`, once."""

SUPPRESSED_DAYS: Final = 90
"""How long a discarded recommendation hides the same finding: the day of discarding is the first of them."""

VERIFY_DAYS: Final = (14, 28)
"""The usual window of a verification. A hotel's is a booking cycle, which may be longer."""

ESCALATION: Final = Fraction(3, 2)
"""An open finding is raised again when its impact has grown to this multiple of the one recorded."""

FAILED_BELOW: Final = Fraction(1, 3)
VERIFIED_FROM: Final = Fraction(1)
"""Shares of the way from baseline to target."""

LEASE_SECONDS: Final = 2 * 3600
"""How long a started run is waited for after its last sign of life."""

DISCOVERY_CALLS: Final = frozenset(("list_sites", "get_site", "list_microconversion_types", "list_property_keys"))
"""Calls whose answers belong into a profile: a run that made one and leaves no profile has lost them."""

REFRESHED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "list_sites": ("site_name", "timezone", "currency"),
    "list_microconversion_types": ("events",),
    "list_property_keys": ("product_identifier",),
}
"""The calls that discovery makes, and the fields of the profile that each of them brings."""

REFRESHABLE: Final = tuple(field for fields in REFRESHED_BY.values() for field in fields)

PROFILE_MAPS: Final = frozenset(("events", "thresholds", "targets", "scheduling_offered", "js_api", "extra"))
"""Fields whose members `profile put` joins with the stored ones; there `null` removes a member."""

PROFILE_TEXT: Final = frozenset(("site_name", "events", "product_identifier", "js_api", "notes", "extra"))
"""Fields of a profile that may hold words of strangers (event and property names come from the site's own pages)."""

VERDICTS: Final = ("on_track", "watch", "act", "kpis_only", "refused", "error")
SCORES: Final = tuple(f"{points}/10" for points in range(11))
"""Verdicts of `setup-audit` alone."""

SCORING_SKILL: Final = "setup-audit"

SYMBOLS: Final[Mapping[str, str]] = {"🟢": "on_track", "🟡": "watch", "🔴": "act"}
"""The signs that reports show, and the verdicts they stand for."""

NOTES_LENGTH: Final = 300

BUDGETS_VERSION: Final = "1.15"
"""The release whose documents the ceilings come from: they moved between releases."""

BUDGETS: Final[Mapping[str, tuple[int, ...]]] = {
    "core": (4, 12),
    "weekly-health-check": (8,),
    "monday-briefing": (15,),
    "diagnose-drop": (12,),
    "opportunity-scan": (12,),
    "funnel-analysis": (10,),
    "product-friction": (12,),
    "calibrate-watchdog": (40,),
    "cart-watchdog": (6,),
    "channel-mix-optimizer": (10,),
    "property-explorer": (15,),
    "cost-reduction": (12,),
    "setup-audit": (13, 14),
    "create-alert": (3,),
    "install-sealmetrics": (24,),
}
"""Skill → the ceilings it documents. One number: it may be left out of `run log`. Several: the run has to say which
(a simple question or a diagnosis; without or with an install plan)."""

BUDGET_PER_RULE: Final[Mapping[str, int]] = {"check-alerts": 3}
"""Skills whose ceiling is this number for each rule."""

BUDGET_WITH_PLAN: Final[Mapping[str, int]] = {"setup-audit": 14}
"""Skills whose ceiling is another one where an install plan exists."""

WRITERS: Final[Mapping[str, str]] = {
    "map put": "property-explorer",
    "baseline put": "calibrate-watchdog",
    "watch observe": "cart-watchdog",
}
"""Command → the skill whose business it is. A person (no skill named) may do all of them; another skill is told."""

# The watchdog's judgement ---------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """Bounds of today's total over the expected one: below `healthy` or from `spike` on is watch; below `act` or from
    `spike_act` on is act, when the reading before was no better than watch."""

    healthy: Fraction
    act: Fraction
    spike: Fraction
    spike_act: Fraction


LIMITS: Final = Limits(Fraction(1, 2), Fraction(1, 5), Fraction(2), Fraction(3))
LIMITS_EXPIRED: Final = Limits(Fraction(1, 4), Fraction(1, 10), Fraction(3), Fraction(9, 2))

QUIET_BELOW: Final = 5
"""With fewer events expected so far, a ratio says nothing."""

READING_SECONDS: Final = 24 * 3600
"""A reading older than this is no previous one."""

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

CALCULATED: Final = frozenset(("busiest", "quietest_nonzero", "inputs", "op"))
"""What the calculator of baselines prints beside what the file holds."""

# Names that were written where the contract has another one -----------------------------------------------------------

PROFILE_RENAMED: Final[Mapping[str, str]] = {
    "name": "site_name",
    "domain": "site_name",
    "domains": "site_name",
    "event_names": "events",
    "conversion_event": "events.purchase",
    "purchase_event": "events.purchase",
    "view_event": "events.view",
    "atc_event": "events.add_to_cart",
    "checkout_event": "events.checkout",
    "microconversion_events": "extra.microconversion_events",
    "microconversion_types": "extra.microconversion_types",
    "product_identifier_table": "product_identifier.table",
    "discovered_at": "discovery_cached_at",
    "created_at": "discovery_cached_at",
    "generated_at": "discovery_cached_at",
    "first_run": "discovery_cached_at",
    "stale_after": "discovery_cached_at",
    "first_seen": "first_data_date",
    "business_type": "vertical",
    "industry": "vertical",
}

RUN_RENAMED: Final[Mapping[str, str]] = {
    "calls_used": "calls",
    "run_at": "ts",
    "date": "ts",
    "timestamp": "ts",
    "reason": "notes",
    "note": "notes",
    "findings_issued": "notes",
    "findings": "notes",
    "result": "verdict",
    "status": "verdict",
    "site_id": "--site",
    "site": "--site",
}

RECOMMENDATION_RENAMED: Final[Mapping[str, str]] = {
    "impact": "impact_eur_month",
    "impact_eur": "impact_eur_month",
    "created_at": "date",
    "issued_on": "date",
    "verify_in": "--verify-in",
    "campaign": "subject",
    "recommendation": "action",
    "verify_at": "verify_on",
}

RULE_RENAMED: Final[Mapping[str, str]] = {"expected_basis": "expected.basis", "name": "id", "type": "family"}

VALUE_RENAMED: Final[Mapping[tuple[str, str], str]] = {
    ("connector", "remote-oauth"): "remote",
    ("agent_analytics_enabled", "refused"): '"unknown"',
    ("account_id", "same"): "same-as-site",
}
"""(field, value) → the value that was meant."""
