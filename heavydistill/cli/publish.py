"""``heavydistill publish``: sets as a dataset on the Hub, or a trained model as a model there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_TERMS = "Terms"


def publish(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of sets, from `heavydistill build`, or of a model, from scripts/sft.py.",
        ),
    ],
    to: Annotated[str, typer.Option(metavar="ORG/NAME", help="Dataset or model on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make a private repository.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Write what would be sent beside DIR, and send nothing."),
    ] = False,
    revision: Annotated[
        str | None,
        typer.Option(metavar="BRANCH", help="Branch, made if it is missing. [default: main]"),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(
            "--license",
            metavar="ID",
            help="Licence of what is published, e.g. cc-by-4.0. [default: the models', or other]",
            rich_help_panel=_TERMS,
        ),
    ] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Profile of your own, of a model that it comes from; may be repeated.",
            rich_help_panel=_TERMS,
        ),
    ] = None,
    allow_unknown_terms: Annotated[
        bool,
        typer.Option(
            "--allow-unknown-terms",
            help="Publish although a model's terms on training with what it writes are unknown.",
            rich_help_panel=_TERMS,
        ),
    ] = False,
    allow_restricted_terms: Annotated[
        bool,
        typer.Option(
            "--allow-restricted-terms",
            help="Publish although a model's maker restricts it.",
            rich_help_panel=_TERMS,
        ),
    ] = False,
) -> None:
    """Put training sets or a trained model on the Hub, with a card that tells how they were made.

    It is one commit: if it fails, the repository is as it was, and the same command can be given
    again. The token is taken from HF_TOKEN or from `hf auth login`, the address from HF_ENDPOINT.
    The card is made anew each time; what you write under Notes, at the end of DIR/README.md, goes
    with it.
    """
    from heavydistill.hub.options import PublishOptions
    from heavydistill.hub.publish import copy, pack
    from heavydistill.hub.publish import publish as send

    options = PublishOptions(
        repo_id=to,
        revision=revision,
        private=private,
        licence=licence,
        profiles=profile or (),
        allow_unknown=allow_unknown_terms,
        allow_restricted=allow_restricted_terms,
    )
    parcel = pack(folder, options)
    width = max(map(len, parcel.sizes))
    for name, size in parcel.sizes.items():
        typer.echo(f"{name:<{width}}  {size:>15,} bytes")
    typer.echo(f"{len(parcel.sizes)} files, {sum(parcel.sizes.values()):,} bytes")
    if parcel.kept_back:
        typer.echo(f"Not sent, of what is in {folder}: {', '.join(parcel.kept_back)}")
    if dry_run:
        typer.echo(f"Nothing was sent. What would be is in {copy(parcel, folder)}")
        return
    done = send(parcel, options)
    for name in done.deleted:
        typer.echo(f"Deleted there, of what was published before: {name}")
    said = "Published" if done.is_new else "Everything was there already, nothing was sent"
    typer.echo(f"{said}: {done.url} ({'private' if done.is_private else 'public'})")
    typer.echo(f"Commit {done.commit}")
