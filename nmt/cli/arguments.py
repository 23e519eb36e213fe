"""Arguments that several commands have: their types, MODEL, the table of decoding options; and how errors call them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nmt.data.text import NotUtf8Error
from nmt.errors import ConfigError, NmtError, SettingError, counted, refused, shown
from nmt.light.options import NONE, OPTIONS, Option, as_keys, command_option
from nmt.light.pretrained import names as pretrained_names
from nmt.limits import LARGEST, MOST, MOST_MINUTES

if TYPE_CHECKING:
    from nmt.config import DecodingConfig

N = TypeVar("N", int, float)
_DIGITS = 30


def _read_by(kind: Callable[[str], N], is_allowed: Callable[[N], bool], wanted: str) -> Callable[[str], N]:
    """The type of an argument; `wanted` says in words what is allowed."""

    def read(text: str) -> N:
        with contextlib.suppress(ValueError):
            number = kind(text)
            if is_allowed(number):
                return number
        raise argparse.ArgumentTypeError(f"{shown(text)} is not {wanted}")

    return read


def whole_number(least: int, most: int = MOST, *, also: str = "") -> Callable[[str], int]:
    """The type of an argument that is a whole number; `also` ends the message about another one."""
    wanted = f"a whole number of {least} or more" if most == MOST else f"a whole number from {least} to {most:,}"
    return _read_by(_integer, lambda number: least <= number <= most, wanted + also)


def _integer(text: str) -> int:
    if len(text) > _DIGITS:  # Python itself limits integers to some thousands of digits
        raise ValueError
    return int(text)


def real_number(is_allowed: Callable[[float], bool], wanted: str) -> Callable[[str], float]:
    """The type of an argument that is a number; `wanted` says in words what is allowed."""
    return _read_by(float, is_allowed, wanted)


positive = whole_number(1)
natural = whole_number(0)
seed = whole_number(1, 2**32 - 1)
"""A seed of NumPy's generator."""
resamples = whole_number(1, 10**6)
"""Number of resamples of a test set; each needs memory."""
minutes = real_number(
    lambda number: 0 < number <= MOST_MINUTES, f"a number of minutes above 0 and at most {MOST_MINUTES:,}"
)
seconds = real_number(lambda number: 0 < number <= 86_400, "a number of seconds above 0 and at most 86,400")
"""At most a day."""
share = real_number(lambda number: 0 <= number <= 1, "a number from 0 to 1")
above_zero = real_number(lambda number: 0 < number <= LARGEST, "a number above 0")


def any_text(value: str) -> str:
    """Text as it is, where an argument without a type is the name of a file, in which `~` is the home directory."""
    return value


def details(text: str) -> tuple[str, ...]:
    """Names of details of a translation, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    known = OPTIONS["details"].choices
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(refused("", name, known, problem="is not known"))
    return names


def whole_of(option: Option) -> Callable[[str], int | str]:
    """The type of an option that is a whole number, or one of its words."""
    also = "".join(f", or {word}" for word in option.words)
    read = whole_number(int(option.least), int(option.most), also=also)
    return lambda text: text if text in option.words else read(text)


def ensemble_weights(text: str) -> list[float] | str:
    """Numbers above 0, separated by commas, or `none`."""
    if text == NONE:
        return text
    wanted = f"one number above 0 for each model, such as 2,1, or {NONE}"
    try:
        return [above_zero(part) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not {wanted}") from None


MODEL = "run directory, checkpoint in it, or output of nmt-average, nmt-convert or nmt-export"
SEVERAL = "; the probabilities of several models are averaged"
MODELS = MODEL + SEVERAL
MODEL_OR_FILE = f"{MODEL} (folder or file), or a model of nmt's own ({', '.join(pretrained_names())})"
MODELS_OR_FILES = MODEL_OR_FILE + SEVERAL
"""For commands that also accept files for the engine."""
RUN = "run directory of nmt-train"


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the one MODEL of a command, as `arguments.model`."""
    parser.add_argument("model", metavar="MODEL", help=MODEL)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add `--checkpoint`."""
    parser.add_argument(
        "--checkpoint", metavar="STEP|best|last", default="best", help="checkpoint of each run to use (default: best)"
    )


DECODING: Final = tuple(name for name, option in OPTIONS.items() if option.is_key)
"""Options of a command line that are keys of the section `decoding`."""
_WITH_OPTION: Final = tuple(name for name in DECODING if name != "n_best")
"""`n_best` has a place of its own among the options of each command."""


def add_decoding(group: argparse._ActionsContainer, names: Sequence[str] = _WITH_OPTION) -> None:
    """Add options of the table to a command that translates; `overridden` reads them, and `n_best`."""
    types: dict[str, Callable[[Option], Callable[[str], object]]] = {
        "whole": whole_of,
        "number": lambda option: real_number(lambda number: option.least <= number <= option.most, option.allowed()),
        "weights": lambda option: ensemble_weights,
    }
    for option in (OPTIONS[name] for name in names):
        reading: dict[str, Any] = {"metavar": option.metavar}
        if option.kind == "flag":
            reading = {"action": argparse.BooleanOptionalAction}
        elif option.kind == "choice":
            reading = {"choices": option.choices}
        elif option.kind == "pairs":
            reading["action"] = "append"
        elif option.kind in types:
            reading["type"] = types[option.kind](option)
        group.add_argument(command_option(option.name), dest=option.name, help=option.help, **reading)


def add_n_best(group: argparse._ActionsContainer, *, help: str | None = None, default: int | None = None) -> None:
    """Add --n-best."""
    option = OPTIONS["n_best"]
    help = help or f"{option.meaning}; a smaller beam is widened"
    read = whole_of(OPTIONS["beam_size"])  # which is widened to it
    group.add_argument("--n-best", metavar=option.metavar, type=read, default=default, help=help)


def check_labels(labels: Sequence[str], number: int, of: str, *, called: str = "label", listed: str = "") -> None:
    """Raise ConfigError unless `--labels` has a name for each of `number` systems or runs, all of them different."""
    if len(labels) != number:
        given = f"{counted(len(labels), called)} for {counted(number, of)}{listed}"
        raise ConfigError(f"--labels: {given}; give one for each")
    if len({*labels}) < number:
        raise ConfigError(f"--labels: two {called}s are equal; give each {of} its own")


def check_ensemble(arguments: argparse.Namespace, *, models: int) -> None:
    """Raise ConfigError for ensemble options that do not fit the number of models."""
    weights = arguments.ensemble_weights
    if weights not in (None, NONE) and len(weights) != models:
        from nmt.search.ensemble import wrong_number

        raise ConfigError(f"--ensemble-weights: {wrong_number(len(weights), models=models)}")
    if arguments.ensemble_mean is not None and models == 1:
        raise ConfigError("--ensemble-mean: there is only 1 model; give several")


def given(
    arguments: argparse.Namespace,
    names: Sequence[str] = DECODING,
    *,
    read: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """The options of the table that a command line sets, of those with such `names`; `read` reads `search_options`."""
    found = {name: value for name in names if (value := getattr(arguments, name, None)) is not None}
    if "search_options" in found:
        found["search_options"] = (read or search_options)(found["search_options"])
    return found


def overridden(
    decoding: DecodingConfig, arguments: argparse.Namespace, *, say: Callable[[str], object] | None = None
) -> DecodingConfig:
    """The decoding settings of a model, changed by a command line; `say` as in `changed_decoding`."""
    from nmt.config.options import changed_decoding

    changes = as_keys(given(arguments))
    if "search_options" in changes:
        own = changes.pop("search_options")
        plain = changed_decoding(decoding, changes, option=command_option)
        # plain: without the saved search's options if another search is chosen
        changes["search_options"] = {**plain.search_options, **own}
    return changed_decoding(decoding, changes, option=command_option, say=say)


def search_options(given: Sequence[str]) -> dict[str, Any]:
    """Search options from KEY=VALUE; values are YAML, as for --set."""
    from nmt.config.yaml12 import read_yaml

    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--search-option {shown(text)[1:-1]}: must be KEY=VALUE, such as temperature=0.7")
        if key.strip() in found:
            raise ConfigError(f"--search-option {key.strip()}: given twice")
        try:
            found[key.strip()] = read_yaml(value, origin="value").value
        except ConfigError as error:
            message = str(error).removeprefix("value: ").removeprefix("line 1: ")
            raise ConfigError(f"--search-option {key.strip()}: {message}") from None
    return found


def option_of(name: str) -> str:
    """The option that gives the argument `name`."""
    return "--plugin" if name == "plugins" else command_option(name)


def worded(error: NmtError, arguments: argparse.Namespace) -> str:
    """The message of an error for the user of a command line.

    Each setting that was given as an option is called by that option, one of the saved configuration by its key.
    """

    def given_as(key: str) -> str:
        name, _, of_search = key.removeprefix("decoding.").partition(".")
        if of_search and name == "search_options":
            given = {text.partition("=")[0].strip() for text in getattr(arguments, name, None) or ()}
            return f"{option_of(name)} {of_search}" if of_search.partition(".")[0] in given else key
        name = key.removeprefix("decoding.")
        return option_of(name) if getattr(arguments, name, None) not in (None, []) else key

    if isinstance(error, SettingError):
        return error.said(given_as)
    if isinstance(error, NotUtf8Error) and hasattr(arguments, "errors"):
        return f"{error}, or see --errors"
    return str(error)
