"""``heavydistill publish``: sets as a dataset on the Hub, or a trained model as a model there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heavydistill.cli.flags import Flag, with_flags
from heavydistill.hub.options import PublishOptions

_TERMS = "Terms"
_FLAGS = (
    Flag("repo_id", name="to", needed=True),
    Flag("private"),
    Flag("revision"),
    Flag("licence", _TERMS, "license"),
    Flag("profiles", _TERMS, "profile"),
    Flag("allow_unknown", _TERMS, "allow-unknown-terms"),
    Flag("allow_restricted", _TERMS, "allow-restricted-terms"),
)


@with_flags(PublishOptions, _FLAGS)
def publish(
    keys: dict[str, Any],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of sets, from `heavydistill build`, or of a model, from scripts/sft.py.",
        ),
    ],
    *,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Write what would be sent beside DIR, and send nothing."),
    ] = False,
) -> None:
    """Put training sets or a trained model on the Hub, with a card that tells how they were made.

    It is one commit: if it fails, the repository is as it was, and the same command can be given
    again. The token is taken from HF_TOKEN or from `hf auth login`, the address from HF_ENDPOINT.
    The card is made anew each time; what you write under Notes, at the end of DIR/README.md, goes
    with it.
    """
    from heavydistill.hub.publish import copy, pack
    from heavydistill.hub.publish import publish as send

    options = PublishOptions(**keys)
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
