"""The `seal` domain: the state of Seal Copilot, one folder a site below one state directory.

What may be relied on: every operation is a pure function of the documents, its parameters and the call's context; no
module here opens a file (the time zone database apart), reads the environment or asks for the time.

    tables           files, lifetimes, verdicts, ceilings, limits, names of old releases
    records          the records as types, and `problems`, which compares a value with one
    personal         the screen for personal data
    sites            where the state is, and which site a call means
    common           parameters that every operation has, refusals, text for a terminal
    profile          `profile get|put|unset`, `offer`
    runs             `run log|last`
    leases           `run start|count|finish`, and runs that are never finished
    run_stats        `run stats`
    ledger           the rules of the ledger: thirds, escalation, what hides a finding, ids
    recommendations  `rec due|list|record|check|add|settle|escalate|discard`
    property_map     `map get|put`
    baseline         `baseline get|put`, `watch observe`
    hook             what a session is told at its start
    checks           the contract as checks of files that others edited
"""

from __future__ import annotations

from typing import Final

from stated.domain import Domain, Kind, Operation
from stated.domains.seal import (
    baseline,
    checks,
    hook,
    leases,
    profile,
    property_map,
    recommendations,
    run_stats,
    runs,
    sites,
    tables,
)

__all__ = ["DOMAIN"]

_OPERATIONS: Final = (
    Operation(
        name="profile get",
        kind=Kind.READER,
        summary="What is known of a site, and how old that is.",
        params=profile.Get,
        run=profile.get,
        human=profile.draw_get,
        details=(
            f"A profile is fresh for {tables.PROFILE_DAYS} days. An older one is given all the same, marked `stale`, "
            "with the "
            "fields to refresh and the calls that bring them; one without a usable date is `undated` and counts as "
            "stale. "
            "An absent or broken profile is an answer too (`absent`, `corrupt`), exit 0. A field that is absent is "
            "unknown: "
            "there are no defaults. The profile's own notes are history and are shown only for `--need notes`."
        ),
        examples=("seal profile get", "seal --site example-com profile get --need timezone,events.purchase"),
    ),
    Operation(
        name="profile put",
        kind=Kind.WRITER,
        summary="Set fields of a site's profile; makes the profile if there is none.",
        params=profile.Put,
        run=profile.put,
        human=profile.draw_change,
        details=(
            "Only the fields given change. "
            f"{', '.join(sorted(tables.PROFILE_MAPS))} are joined member by member (one level deep; null removes a "
            "member); "
            "every other field is replaced whole. `discovery_cached_at` is set by the daemon, when the profile is "
            "made and "
            "by `--why discovery`. `--why learned` dates the values given, `--why contradiction` makes all others "
            "stale at "
            "once, `--why user` dates nothing. Unknown fields belong under `extra`. A put that changes nothing "
            "writes nothing."
        ),
        examples=(
            """seal profile put --why discovery --data '{"timezone":"Europe/Madrid","currency":"EUR"}'""",
            """seal profile put --why user --data '{"thresholds":{"min_entrances":500}}'""",
        ),
    ),
    Operation(
        name="profile unset",
        kind=Kind.WRITER,
        summary="Remove a field of a site's profile, or one member of it.",
        params=profile.Unset,
        run=profile.unset,
        human=profile.draw_change,
        details="`site_id` and `discovery_cached_at` stay: a profile needs them. Removing an absent field is no error.",
        examples=("seal profile unset first_data_date", "seal profile unset events.checkout"),
    ),
    Operation(
        name="offer",
        kind=Kind.WRITER,
        summary="Ask whether a schedule may be offered: the first asker is told so, all later ones are not.",
        params=profile.Offer,
        run=profile.offer,
        details="Looks and marks in one step, so that of two skills that ask at the same time one is first. On a site "
        "without a profile it makes one, dated today.",
        examples=("seal offer monday_briefing",),
    ),
    Operation(
        name="run log",
        kind=Kind.WRITER,
        summary="Log one run of a skill.",
        params=runs.Log,
        run=runs.log,
        human=runs.draw_log,
        details=(
            "Needs the skill, the calls counted and a verdict; the time is the daemon's, and the budget of a skill "
            "with one "
            "documented ceiling need not be given. `--data` takes the whole record in place of the flags. More calls "
            "than "
            "the budget are logged as they are and answered with `over_budget`."
        ),
        examples=(
            "seal run log --skill monday-briefing --calls 13 --budget 15 --verdict watch --scheduled",
            """seal run log --data '{"skill":"diagnose-drop","calls":9,"budget":12,"verdict":"act"}'""",
        ),
    ),
    Operation(
        name="run last",
        kind=Kind.READER,
        summary="The latest runs of a site, newest first.",
        params=runs.Last,
        run=runs.last,
        human=runs.draw_last,
        details=(
            "What a run noted was about that run: the reply is marked as history. Lines that cannot be read are "
            "counted and "
            "left where they are. The runs of the past are information; they never make a new run unnecessary."
        ),
        examples=("seal run last", "seal run last --skill monday-briefing --limit 1"),
    ),
    Operation(
        name="run start",
        kind=Kind.MEMORY,
        summary="Open a run: its calls are counted from here, and its end is waited for.",
        params=leases.Start,
        run=leases.start,
        details=(
            "Answers with the run's id, its budget, the skill's last run and, where a run of the same skill is still "
            "open, that one with its age in `overlap`: whether to go on is the caller's to decide. A run that is "
            "neither counted nor finished for two hours (`--lease`) is logged as `error`."
        ),
        examples=("seal run start --skill monday-briefing --scheduled",),
    ),
    Operation(
        name="run count",
        kind=Kind.MEMORY,
        summary="Count a Sealmetrics call of an open run.",
        params=leases.Count,
        run=leases.count,
        details="Calls made in parallel all count. `--tool` lets the end of the run see whether discovery was made.",
        examples=("seal run count --tool list_sites", "seal run count --run r0123456789 --n 3"),
    ),
    Operation(
        name="run finish",
        kind=Kind.WRITER,
        summary="Close a run and log it.",
        params=leases.Finish,
        run=leases.finish,
        human=runs.draw_log,
        details=(
            "The calls that were counted are logged; `--calls` is compared with them (`mismatch`), and taken only "
            "where none were counted. `profile_not_written` among the warnings: the run made calls and the site still "
            "has no profile. A run that was given up in the meantime gets its own line in the place of that one."
        ),
        examples=("seal run finish --verdict watch", "seal run finish --run r0123456789 --verdict act --calls 9"),
    ),
    Operation(
        name="run stats",
        kind=Kind.READER,
        summary="Calls against budgets, skill by skill.",
        params=run_stats.Stats,
        run=run_stats.stats,
        human=run_stats.draw_stats,
        details=(
            "`over_share` is the share of runs that made more calls than their own budget. `unfinished` are runs that "
            "were started, never finished and had nothing counted: they have no line in the log. `unmeasured` are "
            "lines of old releases without usable numbers."
        ),
        examples=("seal run stats", "seal run stats --since 2026-09-01 --all-sites"),
    ),
    Operation(
        name="rec due",
        kind=Kind.READER,
        summary="The open recommendations that are to be measured again, longest waiting first.",
        params=recommendations.Due,
        run=recommendations.due,
        human=recommendations.draw_entries,
        details=(
            "Measure each with one call and give the value to `rec settle`. `problems` names the lines that cannot be "
            "read or never fall due."
        ),
        examples=("seal rec due --limit 2",),
    ),
    Operation(
        name="rec list",
        kind=Kind.READER,
        summary="The recommendations as they stand in the ledger.",
        params=recommendations.List,
        run=recommendations.list_,
        human=recommendations.draw_entries,
        details="In the ledger's own order. Texts that quote strangers are named in `untrusted`.",
        examples=("seal rec list", "seal rec list --status open"),
    ),
    Operation(
        name="rec record",
        kind=Kind.READER,
        summary="The track record: what came of each recommendation, and from where to where it moved.",
        params=recommendations.TrackRecord,
        run=recommendations.record,
        human=recommendations.draw_entries,
        details="`verified_impact` has one total for each currency.",
        examples=("seal rec record",),
    ),
    Operation(
        name="rec check",
        kind=Kind.READER,
        summary="Whether a finding is news.",
        params=recommendations.Check,
        run=recommendations.check,
        details=(
            "`suppressed`: the same pattern and subject are open and the impact has not grown by half, or were "
            f"discarded less than {tables.SUPPRESSED_DAYS} days ago (`until` is the first free day). `escalate`: open "
            "since `since`, and grown by half. `incomparable`: open, in another or an unknown currency."
        ),
        examples=("seal rec check --pattern leaky-campaign --subject summer-sale-es --impact 2760",),
    ),
    Operation(
        name="rec add",
        kind=Kind.WRITER,
        summary="Add a recommendation, unless the ledger has it already.",
        params=recommendations.Add,
        run=recommendations.add,
        human=recommendations.draw_entry,
        details=(
            "Looks and adds in one step: `created`; `duplicate` (this very entry is there); `suppressed` (open or "
            "discarded, see `rec check`); `escalate` (open and grown by half: the new impact is recorded on the open "
            "entry, so that it is raised once). Date, id and status are the daemon's. An amount in EUR is stored as "
            "`impact_eur_month`, one in another currency as `impact_month` with `currency`; without `--currency` it is "
            "the profile's."
        ),
        examples=(
            "seal rec add --skill opportunity-scan --pattern leaky-campaign --subject summer-sale-es "
            "--evidence '2,014 entrances, CR 0.8% vs 2.1%' --action 'Fix the landing page' --metric 'campaign CR' "
            "--baseline 0.008 --target 0.021 --impact 1840 --currency EUR --verify-in 28d",
        ),
    ),
    Operation(
        name="rec settle",
        kind=Kind.WRITER,
        summary="Judge a due recommendation by what its metric is now.",
        params=recommendations.Settle,
        run=recommendations.settle,
        human=recommendations.draw_entry,
        details=(
            "At the target or beyond: `verified`. Less than a third of the way, or backwards: `failed`. In between: "
            f"`extended` by {tables.EXTENSION_DAYS} days, once; a second time `failed`. Before its day: `not_due`. "
            "Where it could not be measured, or was settled before: `unchanged`."
        ),
        examples=(
            "seal rec settle 2026-09-07-leaky-campaign-summer-sale-es --measured 0.0225",
            "seal rec settle 2026-09-07-leaky-campaign-summer-sale-es --unavailable 'the call was refused'",
        ),
    ),
    Operation(
        name="rec escalate",
        kind=Kind.WRITER,
        summary="Record that an open recommendation's impact has grown by half.",
        params=recommendations.Escalate,
        run=recommendations.escalate,
        human=recommendations.draw_entry,
        details="`rec add` does it by itself; this is for what `rec check` answered.",
        examples=("seal rec escalate 2026-09-07-leaky-campaign-summer-sale-es --impact 2760",),
    ),
    Operation(
        name="rec discard",
        kind=Kind.WRITER,
        summary=f"Close an open recommendation as not wanted, and hide the finding for {tables.SUPPRESSED_DAYS} days.",
        params=recommendations.Discard,
        run=recommendations.discard,
        human=recommendations.draw_entry,
        details="The reason is kept in the entry's `notes`. Discarding a discarded entry again changes nothing.",
        examples=("seal rec discard 2026-09-07-leaky-campaign-summer-sale-es --why 'the campaign has ended'",),
    ),
    Operation(
        name="map get",
        kind=Kind.READER,
        summary="The property map as Markdown.",
        params=property_map.Get,
        run=property_map.get,
        text=property_map.show,
        human=property_map.draw_get,
        details=(
            f"A map is fresh for {tables.MAP_DAYS} days. `--json` (before `seal`) gives its state, age and revision as "
            "well. Of a map that is not fresh the Markdown begins with a comment that says so."
        ),
        examples=("seal map get",),
    ),
    Operation(
        name="map put",
        kind=Kind.WRITER,
        summary="Replace the property map by this Markdown.",
        params=property_map.Put,
        run=property_map.put,
        details=(
            "Where a map is there, `--if-rev` must give the revision that was read; a map changed since is not "
            "replaced, and the refusal names the lines. A table must be there. The map's date stands in a comment that "
            "the daemon keeps; it moves when property-explorer writes."
        ),
        examples=("seal --skill property-explorer map put --if-rev 41 --data -",),
    ),
    Operation(
        name="baseline get",
        kind=Kind.READER,
        summary="What a normal hour looks like.",
        params=baseline.Get,
        run=baseline.get,
        human=baseline.draw_get,
        details=(
            "`--expect-now` adds how many events there should have been by the end of this hour, by the site's own "
            f"clock. An expired baseline is given all the same. `quiet`: fewer than {tables.QUIET_BELOW} expected."
        ),
        examples=("seal baseline get", "seal baseline get --expect-now"),
    ),
    Operation(
        name="baseline put",
        kind=Kind.WRITER,
        summary="Store a new calibration.",
        params=baseline.Put,
        run=baseline.put,
        details=(
            "`--data` takes the calculator's output as it is; what the file does not hold is left out and named in "
            f"`dropped`. Dates are the daemon's: it expires after {tables.BASELINE_DAYS} days. `diff` says what "
            "changed against the baseline before."
        ),
        examples=(
            """seal baseline put --event deposit_started --mode C --data '{"daily_median":{"mon":1400,"tue":1500}}'""",
        ),
    ),
    Operation(
        name="watch observe",
        kind=Kind.WRITER,
        summary="Judge today's count against the baseline.",
        params=baseline.Observe,
        run=baseline.observe,
        human=baseline.draw_observe,
        details=(
            "`healthy`, `watch`, `act`, or `quiet` where too little is expected to tell. `act` needs two bad readings "
            "in a row, not more than a day apart, for drops and for spikes. `no_baseline`, `no_baseline_for_weekday` "
            "and `unknown_time` (the profile has no time zone) are no readings and change nothing."
        ),
        examples=("seal watch observe --actual 22 --last-event 2026-09-18T10:12:00Z",),
    ),
)

DOMAIN: Final = Domain(
    name="seal",
    title="Seal Copilot",
    summary="What Seal Copilot's skills know of a site: profile, runs, recommendations, property map, baseline.",
    operations=_OPERATIONS,
    locate=sites.locate,
    documents=checks.DOCUMENTS,
    options=("site", "skill"),
    announce=hook.announce,
    memories=(*leases.MEMORIES, *property_map.MEMORIES, *baseline.MEMORIES),
    upkeep=Operation(
        name="upkeep",
        kind=Kind.WRITER,
        summary="Log the runs that were never finished.",
        params=leases.Upkeep,
        run=leases.upkeep,
    ),
    fallback_line="State directory: {root}",
    state_dir_variable=sites.VARIABLE,
    default_root=sites.DEFAULT,
    groups={
        "profile": "what is known of a site: read it, set fields, remove fields",
        "run": "the log of runs: log one in one call, or start, count and finish it; look back",
        "rec": "the ledger of recommendations: what is due, what is news, what came of each",
        "map": "the property map, as Markdown",
        "baseline": "what a normal hour looks like",
        "watch": "today's count, judged by the baseline",
    },
    notes={
        "Which skill": (
            "A skill may have any name. One that is close to a documented skill's is told in `warnings`, because a "
            "misspelt name splits the log in two."
        ),
        "Which site": (
            f"Without `--site` a call means {sites.SITE_VARIABLE}, else the only folder of the state directory that "
            "holds a "
            "document of the contract. A folder of any other kind is no site."
        ),
        "Dates of a profile": (
            "`--why learned` dates the refreshable fields it brings in `extra.stated.refreshed`, unless the whole "
            "profile is of "
            "today; `--why user` dates nothing, because a user's word is no measurement."
        ),
        "A date given by the caller": (
            "`discovery_cached_at` in the data of `profile put` must be the stored date or the one the daemon is "
            "about to set."
        ),
        "Existing mistakes": (
            "A write checks the fields it brings. What was wrong before is told in `warnings` and shown by `doctor`; "
            "it is "
            "never a reason to refuse."
        ),
        "An offer before any profile": (
            "`offer` on a site without a profile makes one with `discovery_cached_at` of today, because the format has "
            "no profile without a date. It holds no fact, so `profile get --need` names all as missing."
        ),
        "Schedules": "`monday-briefing` and `monday_briefing` are one schedule.",
        "A note with several lines": "`run log` joins it to one line and says so; more than 300 characters are "
        "refused.",
        "Signs": "🟢, 🟡 and 🔴 are taken as the verdicts `on_track`, `watch` and `act`.",
        "The order of runs": (
            "`run last` sorts by `ts`; a line of an old release without a usable stamp stays beside the line before it."
        ),
        "Runs that are never finished": (
            "The lease of a run begins again with each counted call. A run that was given up is logged at the time of "
            "its last sign of life; when it finishes after all, its own line takes the place of that one. Without a "
            "count, or for a skill without a known ceiling, no line is made up."
        ),
        "Which open run": (
            "`--run` may be left out where one run is open; where the call names a skill, one of that skill."
        ),
        "A count that differs": (
            "`run finish` logs the calls that were counted, and notes a different number that the skill stated, where "
            "the note has room for it."
        ),
        "A run without a profile": (
            "`profile_not_written` is told when a discovery call was counted by its name, or, where calls were counted "
            "without names, when any was made."
        ),
        "One finding": (
            "Case and punctuation tell no pattern or subject apart: `Summer Sale` and `summer-sale` are one. An open "
            "entry decides before a discarded one."
        ),
        "Repeats": (
            "An add of the same finding on the same day is a `duplicate`; on a later day it is `suppressed`. Growth by "
            "half comes first: it is recorded on the open entry by `rec add` itself and answered as `escalate`."
        ),
        "Ninety days": "The day of discarding is the first of them, so the 90th day after it is free again.",
        "An impact of zero or less": "Any positive amount is a growth over it.",
        "Adding up": "Verified impacts are added up for each currency; those without one are a sum of their own.",
        "The date of a property map": (
            "It stands in a comment at the end of the map. It is set when the map is made and by property-explorer; "
            "anybody else's write keeps it. A map without one is `undated`."
        ),
        "A map that others changed": (
            "The refusal names the lines that differ from what was last written here; `statectl diff` has the rest. "
            "Through `statectl` nobody replaces a map without the revision that was read."
        ),
        "Who writes": (
            "A skill that writes another one's document is told in `warnings`; only cart-watchdog is refused when it "
            "tries to store a calibration."
        ),
        "The watchdog's clock": (
            "The site's time zone comes from its profile. Without one `watch observe` answers `unknown_time`: the "
            "caller's own zone is no substitute."
        ),
        "Days without hours": "In mode C each hour counts as one 24th of the day, and the reply says so.",
        "Readings in a row": (
            "The reading before counts as bad when the file's `last_status` says watch or act, for a drop or a spike "
            "alike, and its `last_checked_at` is at most a day old. A quiet or healthy one ends the row."
        ),
        "A new calibration": (
            "It keeps the watchdog's last reading when the event is the same. Data in which nothing happened is "
            "refused; weekdays that it does not cover are told."
        ),
        "A change of tracking": (
            "A contradiction recorded in the profile after a map or a baseline was made makes the one stale and the "
            "other expired."
        ),
    },
)
