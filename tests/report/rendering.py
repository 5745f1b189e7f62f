"""Sections of the page as HTML, as the page has them."""

from __future__ import annotations

from heavydistill.report.page.html import environment
from heavydistill.report.page.sections import PageSection


def rendered(*sections: PageSection) -> str:
    return str(environment().get_template("cards.html").module.sections(sections))
