"""The caches that ``evaluate --widths`` compares.

The evaluated run has the widest cache. Every other width, and every further selection of attempts
for caches narrower than K, is a run on its pools, which asks for deliberations alone. Fewer
deliberations need no run (see ``metrics.experiments.widths``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill import plugins
from heavydistill.config.run import RunConfig, load_config
from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError
from heavydistill.experiments.adaptive import models_of, prices_of
from heavydistill.metrics.experiments.widths import WIDTHS, CacheKind, WidthReport, compare_widths
from heavydistill.run.result import all_traces


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The caches to compare, and how many of their deliberations vote."""

    widths: tuple[int, ...]  # ascending
    depths: tuple[int, ...]  # ascending; empty for D and the powers of two below it
    selections: tuple[str, ...]  # beside that of the run

    @classmethod
    def of(
        cls, widths: str | None, depths: str | None, selections: str | None
    ) -> CacheSizes | None:
        """Read the values of the flags, which have commas; None without widths.

        Raises:
            ConfigError: A value is wrong, or widths are missing.
        """
        if not widths and (depths or selections):
            flag = "--depths" if depths else "--selections"
            raise ConfigError(f"{flag} is given without --widths", "Add e.g. --widths 4,8.")
        names = tuple(filter(None, map(str.strip, (selections or "").split(","))))
        counts = _numbers("--depths", depths, 1) if depths else ()
        return cls(_numbers("--widths", widths, 2), counts, names) if widths else None

    def applied(self, config: RunConfig) -> RunConfig:
        """Return the configuration of the evaluated run; K and D are the largest if not set.

        Raises:
            ConfigError: K or D is set and smaller, D is 0, or the cache has a width already.
        """
        if not config.deliberate.d:
            raise ConfigError("--widths needs deliberations, but --d is 0", "Set --d to 1 or more.")
        if config.cache.width:
            raise ConfigError(
                f"cache.width {config.cache.width} is set beside --widths",
                "Leave it out: the evaluated run has the widest cache of --widths.",
            )
        changes = {"cache": config.cache.model_copy(update={"width": self.widths[-1]})}
        least = {"deliberate": ("d", self.depths[-1], "--depths")} if self.depths else {}
        if not config.pools:  # which have a K, and refuse a larger width
            least["think"] = "k", self.widths[-1], "--widths"
        for name, (key, number, flag) in least.items():
            section = getattr(config, name)
            if key not in section.model_fields_set:
                changes[name] = section.model_copy(update={key: number})
            elif (given := getattr(section, key)) < number:
                raise ConfigError(
                    f"{flag}: {number} is more than the {given} of --{key}",
                    f"Raise --{key}, or leave it out: it is then the largest of {flag}.",
                )
        return config.model_copy(update=changes)

    def depths_of(self, config: RunConfig) -> tuple[int, ...]:
        """Return how many of the deliberations of a run vote."""
        d = config.deliberate.d
        return self.depths or (*(1 << n for n in range((d - 1).bit_length())), d)

    def caches(self, config: RunConfig) -> dict[str, CacheKind]:
        """Return the caches by the name of their run, without that of the run ``config``.

        Raises:
            ConfigError: There is no such selection.
        """
        own, caches = config.cache, dict[str, CacheKind]()
        for name in self.selections:
            plugins.require("selection", name, "--selections")
        for width in self.widths:
            caches[f"width-{width}"] = CacheKind(width, own.selection)
            for name in self.selections if width < config.think.k else ():
                caches[f"width-{width}-{name}"] = CacheKind(width, name)
        return {name: cache for name, cache in caches.items() if cache != _cache_of(config)}


def measure_widths(
    folder: Path, own: str, others: Mapping[CacheKind, str], depths: Sequence[int]
) -> WidthReport:
    """Compare the caches of finished runs in a folder, and write ``widths.json``.

    Args:
        folder: Folder of the evaluation.
        own: Name of the run that made the pools.
        others: Names of the other runs.
        depths: Numbers of deliberations that vote.
    """
    names = {_cache_of(load_config(folder / own / "config.yaml")): own, **others}
    traces = {cache: all_traces(folder / name) for cache, name in names.items()}
    report = compare_widths(traces, depths, prices_of(models_of(folder / own)))
    write_versioned(report, folder / WIDTHS)
    return report


def _cache_of(config: RunConfig) -> CacheKind:
    return CacheKind(config.cache.width or config.think.k, config.cache.selection)


def _numbers(flag: str, text: str, least: int) -> tuple[int, ...]:
    try:
        numbers = sorted({int(each) for each in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < least:
        raise ConfigError(
            f"{flag} {text!r} is not a list of whole numbers of at least {least}",
            f"Write e.g. {flag} {least},{2 * least},{4 * least}.",
        )
    return tuple(numbers)
