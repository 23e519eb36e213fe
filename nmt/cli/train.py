"""nmt-train: train a model according to a configuration, or resume its training."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from nmt.cli.arguments import minutes
from nmt.cli.common import add_device, add_plugins, main_of, make_parser
from nmt.errors import ConfigError
from nmt.registry import DRY_RUNS, SWEEPS
from nmt.system import CpuClock, columns, keep_large_blocks, wrapped

if TYPE_CHECKING:
    from nmt.training.distributed import World


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-train."""
    parser = make_parser(
        "nmt-train",
        "Train a model. Running the same command again resumes where the last run stopped.",
        examples=(
            "--list",
            "multi30k_lrn.yaml",
            "mine.yaml --dry-run",
            "mine.yaml --set training.lr=1e-3 --set run_dir=runs/slower",
        ),
        usage="CONFIG [options]",
    )
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="YAML file, or a name shown by --list")
    parser.add_argument("--config", dest="config_by_option", metavar="CONFIG", help="alias of CONFIG")
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override a key, such as training.lr=3e-4; repeatable",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the names of the shipped configurations, with descriptions, and exit"
    )
    parser.add_argument("--dump-config", action="store_true", help="print the resolved configuration and exit")
    parser.add_argument(
        "--dry-run", action="store_true", help="load the data, build the model, print what would be done and exit"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="start a new run; an existing run is renamed to RUN.old-1, -2, ..."
    )
    parser.add_argument(
        "--max-minutes",
        metavar="M",
        type=minutes,
        help="M minutes after the start of the command, stop, validate and save; the run can be resumed",
    )
    parser.add_argument(
        "--max-cpu-minutes",
        metavar="M",
        type=minutes,
        help="when the run has used M minutes of CPU time (including the time before a resume), stop, validate and "
        "save",
    )
    SWEEPS.get("runs").add_options(parser)
    add_plugins(parser)
    add_device(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Load the configuration and run the requested action."""
    started, cpu = time.monotonic(), CpuClock()
    place, option = arguments.config, arguments.config_by_option
    if place is not None and option is not None:
        raise ConfigError(f"--config {option}: CONFIG {place} is also given; a run has one configuration")
    if arguments.sweep is not None or arguments.part is not None:
        return int(SWEEPS.get("runs").run(arguments))
    if arguments.list:
        from nmt.config.load import bundled_descriptions

        if place is not None or option is not None:
            raise ConfigError(f"--list: shows all shipped configurations; leave out {place or option}")
        descriptions = bundled_descriptions()
        width, space = max(map(len, descriptions)) + 2, columns(sys.stdout)
        for name, description in descriptions.items():
            line = f"{name:<{width}}{description}"
            print(line if space is None else wrapped(line, space, indent=width))  # on a terminal
        return 0
    if place is None and option is None:
        raise ConfigError("no configuration; give a YAML file, or a name shown by nmt-train --list")
    arguments.config = str(place if option is None else option)
    keep_large_blocks()  # before the first tensor
    from nmt.training.distributed import connected

    with connected(arguments.device) as world:
        return _train(arguments, started=started, cpu=cpu, world=world)


def _train(arguments: argparse.Namespace, *, started: float, cpu: CpuClock, world: World) -> int:
    """The command in one of the processes that run it together, usually one."""
    from nmt.config import dump
    from nmt.library.training import training_config
    from nmt.training.run import build_limits
    from nmt.training.state import Budget

    def warn(line: str) -> None:
        if world.is_main:
            print(f"nmt-train: warning: {line}", file=sys.stderr)

    budget = Budget.of_minutes(arguments.max_minutes, arguments.max_cpu_minutes, started=started)
    config = training_config(  # all mistakes and all missing files are reported at once
        arguments.config,
        arguments.overrides,
        plugins=arguments.plugins,
        device=world.device,
        budget=budget,
        overwrite=arguments.overwrite,
        dry=arguments.dry_run,
        only_shown=arguments.dump_config,
        warn=warn,
    )
    if arguments.dump_config:
        if world.is_main:
            print(dump(config), end="")
        return 0
    if arguments.dry_run:
        if world.is_main:
            DRY_RUNS.get("printed")(config, device=world.device)
        return 0
    from nmt.training.run import run_training

    limits = build_limits(config, budget=budget)
    return run_training(config, world=world, limits=limits, cpu=cpu, overwrite=arguments.overwrite).exit_code


main = main_of(build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
