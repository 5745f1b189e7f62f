"""Configuration of the documentation site: `bash scripts/docs.sh` builds it into build/docs.

Sphinx with MyST and Furo, because all three are released regularly, build without a network and
search without a server, and because Sphinx reads docstrings and checks every link. Of the
alternatives, MkDocs 1.x is no longer maintained, Material for MkDocs ends in 2027, Zensical has no
stable release yet, and Starlight needs Node.js and cannot read docstrings. constraints.txt pins
Sphinx 9.0.4, the last release for Python 3.11.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import heavydistill

project = "heavydistill"
author = "the authors of heavydistill"
copyright = author
release = version = heavydistill.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "markdown_pages"]
# `skills` holds the exported skill, as clients load it.
exclude_patterns = ["extensions", "skills", "static"]
nitpicky = True
# Types in signatures of what other pages describe, or other projects.
nitpick_ignore_regex = [("py:.*", ".*")]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

myst_enable_extensions = ["html_image"]
# Anchors of headings as GitHub makes them, so that links to a section work in both.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"heavydistill {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# Extracts in search results are fetched, which a browser refuses to a page of a folder.
html_show_search_summary = False

# The pages of each section, in the order of the navigation. Other pages of a folder follow those
# that are named here.
sections = {
    "Start": ["start/first-run", "start/own-problems", "start/own-endpoint"],
    "Learn": [
        "learn/1-first-trace",
        "learn/2-problems-and-prompt",
        "learn/3-verifier",
        "learn/4-sets",
        "learn/5-train",
        "learn/6-measure",
    ],
    "Guides": [
        "guides/generate",
        "guides/several-thinkers",
        "guides/prompts",
        "guides/tools",
        "guides/verifiers",
        "guides/own-verifier",
        "guides/plugins",
        "guides/build",
        "guides/train",
        "guides/evaluate",
        "guides/publish",
        "guides/serve",
        "guides/skill",
        "guides/scale",
        "guides/batch",
        "guides/monitor",
        "guides/local-servers",
        "guides/gguf",
    ],
    "Recipes": [
        "recipes/index",
        "recipes/qwen3-4b",
        "recipes/micro",
        "recipes/student-thinks",
        "recipes/imported-answers",
    ],
    "Concepts": [
        "concepts/cache",
        "concepts/strata",
        "concepts/verdicts",
        "concepts/claims",
        "concepts/journal",
        "concepts/intervals",
        "concepts/controls",
    ],
    "Reference": [
        "reference/cli",
        "reference/configuration",
        "reference/python",
        "reference/files",
        "reference/exit-codes",
    ],
    "Evidence": ["evidence/paper", "evidence/results", "evidence/benchmarks"],
    "Troubleshooting": ["troubleshooting"],
    "Develop": [
        "develop/architecture",
        "develop/add-verifier",
        "develop/add-teacher",
        "develop/add-exporter",
    ],
}
