"""Sphinx extension: Markdown pages that read the same on GitHub, in the site and as llms.txt.

The pages hold no toctrees, no directives and no raw HTML but pictures. This extension adds the
navigation from `sections` of conf.py, puts generated text in the place of a comment
`<!-- generated: NAME -->`, shows the picture that fits the colours of the page, and writes the
Markdown of each page and llms.txt beside the HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generated
from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.writers.text import TextTranslator

GENERATED = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
PICTURE = re.compile(r"<picture>(.*?)</picture>", re.DOTALL)
DARK = re.compile(r'<source\s+media="\(prefers-color-scheme: dark\)"\s+srcset="([^"]+)"\s*/?>')
IMAGE = re.compile(r"<img\s[^>]*>")
AUTODOC = re.compile(r"```\{eval-rst\}\n(.*?)```\n?", re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. auto\w+:: (\S+)", re.MULTILINE)
UPWARD_LINK = re.compile(r"\]\((\.\./[^)#\s]*?)/?(#[^)\s]*)?\)")
# What is for tests and maintainers and would only cost a reader of llms.txt tokens.
REMARK = re.compile(r"^<!-- (?:not run|given): .*? -->\n", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension; called by Sphinx."""
    app.add_config_value("sections", {}, "env")
    app.connect("source-read", read_page)
    app.connect("build-finished", write_markdown)
    return {"parallel_read_safe": True}


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn the text of a page into what Sphinx reads; ``source`` is changed in place."""
    page = Path(app.srcdir, f"{docname}.md")
    text = PICTURE.sub(both_pictures, complete(page))
    source[0] = UPWARD_LINK.sub(lambda found: carried(app, page, found), text)
    if docname == app.config.root_doc:
        source[0] += "".join(navigation(app))


def complete(page: Path) -> str:
    """Text of a page with what is generated for it."""
    return GENERATED.sub(lambda found: generated.TEXTS[found[1]](), page.read_text("utf-8"))


def both_pictures(found: re.Match[str]) -> str:
    """Images for dark and for light colours; Furo hides the one that does not fit."""
    image = IMAGE.search(found[1])
    dark = DARK.search(found[1])
    if image is None or dark is None:
        raise ValueError(f"{found[0]}: a picture needs an <img> and a <source> for dark colours.")
    on_dark = re.sub(r'src="[^"]*"', f'src="{dark[1]}"', image[0])
    return "\n\n".join(
        each.replace("<img", f'<img class="only-{name}"')
        for name, each in (("light", image[0]), ("dark", on_dark))
    )


def carried(app: Sphinx, page: Path, found: re.Match[str]) -> str:
    """A link to a file that is no page as a download, so that the site works by itself.

    These are files outside of docs/, and those of the exported skill. A folder stands for its
    README.
    """
    target = (page.parent / found[1]).resolve()
    if target.is_relative_to(app.srcdir) and not target.is_relative_to(Path(app.srcdir, "skills")):
        return found[0]
    return f"](path:{found[1]}{'/README.md' if target.is_dir() else ''})"


def pages_of(app: Sphinx, names: list[str]) -> Iterator[str]:
    """Pages of a section, those that conf.py names first."""
    found = app.env.found_docs if app.env.found_docs else set(app.project.docnames)
    folders = {name.rpartition("/")[0] for name in names} - {""}
    others = sorted(page for page in found if page.rpartition("/")[0] in folders)
    yield from dict.fromkeys([*(name for name in names if name in found), *others])


def navigation(app: Sphinx) -> Iterator[str]:
    for caption, names in app.config.sections.items():
        pages = "\n".join(f"/{name}" for name in pages_of(app, names))
        yield f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def write_markdown(app: Sphinx, exception: Exception | None) -> None:
    """Write the Markdown of each page, and llms.txt as their list."""
    if exception is not None or app.builder.format != "html":
        return
    for page in app.env.found_docs:
        text = REMARK.sub("", complete(Path(app.srcdir, f"{page}.md")))
        text = AUTODOC.sub(lambda found, page=page: plain_api(app, page, found[1]), text)
        target = Path(app.outdir, f"{page}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    Path(app.outdir, "llms.txt").write_text("".join(listing(app)), encoding="utf-8")


def plain_api(app: Sphinx, page: str, directives: str) -> str:
    """What autodoc made of the directives, as text."""
    described = {
        name: node
        for node in app.env.get_doctree(page).findall(addnodes.desc)
        for name in node[0]["ids"]
    }
    document = new_document(page)
    document += [described[name] for name in DIRECTIVE.findall(directives)]
    visitor = TextTranslator(document, app.builder)
    document.walkabout(visitor)
    return f"```text\n{visitor.body.strip()}\n```\n"


def listing(app: Sphinx) -> Iterator[str]:
    """Lines of llms.txt: the name and purpose of the project, then each page with its title."""
    summary = next(
        node.astext().replace("\n", " ")
        for node in app.env.get_doctree(app.config.root_doc).findall(nodes.paragraph)
    )
    yield f"# {app.config.project}\n\n> {summary}\n"
    for caption, names in app.config.sections.items():
        yield f"\n## {caption}\n\n"
        for page in pages_of(app, names):
            yield f"- [{app.env.titles[page].astext()}]({page}.md)\n"
