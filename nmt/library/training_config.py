"""The configuration of a training: all mistakes and all missing files are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.config import Config, load_config
from nmt.config.load import Check
from nmt.config.problems import Problem
from nmt.errors import DataError
from nmt.training import preflight
from nmt.training.preflight import as_begun, cannot_begin, in_replaced_run, is_begun, without_files
from nmt.training.stopping import Budget


def training_config(
    path: str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    *,
    plugins: Sequence[str],
    device: torch.device,
    budget: Budget,
    overwrite: bool,
    warn: Callable[[str], None],
    dry: bool = False,
    only_shown: bool = False,
) -> Config:
    """Like `load_config`, with checks against this machine; a resumed run may lack text that it no longer needs.

    `budget`: how long training may take; `overwrite`: no run is resumed; `dry`: nothing is trained, so text may be
    missing; `only_shown`: the machine does not matter.

    Raises:
        ConfigError: all mistakes, one per line.
        DataError: the only mistakes are missing files.
    """

    def load(*checks: Check) -> Config:
        # Plugins are named in the saved configuration, so that loading the model can say what is missing.
        return load_config(path, overrides, plugins=plugins, checks=checks, is_begun=goes_on, warn=warn)

    def goes_on(config: Config) -> bool:
        return not overwrite and is_begun(config)

    def possible(config: Config) -> list[Problem]:
        return cannot_begin(config, device=device, budget=budget, dry=dry, resumes=goes_on(config))

    def kept(config: Config) -> Config:
        return as_begun(config, warn=warn) if goes_on(config) else config

    if only_shown:
        return load()
    replaced: list[Check] = [in_replaced_run] if overwrite else []
    try:
        return kept(load(possible, without_files, *replaced))
    except DataError:  # the only problem is missing files
        config = load(possible, *replaced)
        if not (dry or goes_on(config)):
            raise
        # A dry run says something without texts, too; a run that resumes needs neither these nor a new tokenizer.
        needed = preflight.without_shortlist if goes_on(config) else preflight.without_models
        return kept(load(possible, needed) if needed(config) else config)
