"""The metrics of the parts of a run: problems of one verifier, of one kind, of one stratum."""

from __future__ import annotations

from collections.abc import Mapping

from heavydistill.metrics.summary import NAMES, Metrics, Summary
from heavydistill.report.breakdown import strata_note
from heavydistill.report.page.cards import card, difference, few_note, scroll, share
from heavydistill.report.page.markup import Html, joined, table, tag
from heavydistill.report.text import counted, marked


def of_groups(summary: Summary) -> Html:
    """A folded table for each way to part the problems, but those that make one group of all."""
    parts = {"Verifier": summary.by_verifier, "Kind": summary.by_family}
    shown = {title: groups for title, groups in parts.items() if len(groups) > 1}
    if summary.by_stratum:
        shown["Stratum"] = summary.by_stratum
    tables = [_table(title, groups, summary) for title, groups in shown.items()]
    if note := strata_note(summary):
        tables.append(tag("p", note, class_="note"))
    tables += few_note(of.problems for groups in shown.values() for of in groups.values())
    folded = tag("details", tag("summary", "Metrics of each"), *tables, class_="whole")
    return card("Parts of the run", folded, wide=True) if tables else Html("")


def _table(title: str, groups: Mapping[str, Metrics], summary: Summary) -> Html:
    k, d = summary.k, summary.d
    heads = (f"M@{k}", f"V@{k}", f"P@{k}", f"HM@{d}", f"HP@{d}", f"HM@{d} - V@{k}")
    shown = {key: head for key, head in zip(NAMES, heads, strict=True) if getattr(summary, key)}
    rows = [
        [
            joined(
                [name, tag("small", marked(counted(metrics.problems, "problem"), metrics.problems))]
            ),
            *((difference if "minus" in key else share)(getattr(metrics, key)) for key in shown),
        ]
        for name, metrics in groups.items()
    ]
    return scroll(table((title, *shown.values()), rows))
