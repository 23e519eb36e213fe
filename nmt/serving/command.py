"""nmt-serve, and nmt-light-serve of the package nmt-light: serve a model over HTTP, with a web page to type into."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import ipaddress
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import (
    DECODING,
    MODELS_OR_FILES,
    add_checkpoint,
    add_decoding,
    any_text,
    check_ensemble,
    given,
    positive,
    real_number,
    seconds,
    whole_number,
)
from nmt.cli.common import ENDINGS, add_device, add_plugins, execute, make_parser
from nmt.errors import ConfigError, shown
from nmt.light.command import pair
from nmt.light.options import OPTIONS
from nmt.light.pretrained import add_models, names, one_ensemble
from nmt.serving import IS_LIGHT, PACKAGE, PROGRAM
from nmt.serving.limits import APIS, Settings
from nmt.serving.log import FORMATS, logged

if TYPE_CHECKING:
    from nmt.library.translator import Translator
DESCRIPTION = """Serve a model over HTTP: POST /translate answers {"text": ...} with translations, and / is a page that
translates while you type. Requests of different clients are translated in common batches. After SIGTERM or Ctrl-C the
server answers all accepted requests and ends; after a second signal it ends at once. After SIGHUP it loads the model
again."""
port = whole_number(0, 65_535)
"""A TCP port; 0: any free port."""
milliseconds = real_number(lambda number: 0 <= number <= 1000, "a number of milliseconds from 0 to 1,000")
KEY = "NMT_API_KEY"
PACKAGES = ("fastapi", "h11", "prometheus_client")
"""The extra `serve`."""
SEARCH = [name for name in DECODING if name != "n_best" and (not IS_LIGHT or "light" in OPTIONS[name].doors)]
"""Options of the search that a request may leave out."""


def network(text: str) -> str:
    """An IP address, or the addresses of a network."""
    try:
        return str(ipaddress.ip_network(text.strip()))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not an address such as 127.0.0.1, or a network such as 10.0.0.0/8"
        ) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    with contextlib.ExitStack() as log:  # which also takes the line that ends the command
        return execute(build_parser(), functools.partial(serve, log=log), argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-serve."""
    parser = make_parser(
        PROGRAM,
        DESCRIPTION,
        examples=("en-de" if IS_LIGHT else "runs/demo", "model.nmt --host 0.0.0.0 --port 8000"),
        usage="MODEL... [--host HOST] [--port PORT] [options]",
    )
    file = f"file of nmt-export (.nmt), or a model of nmt's own ({', '.join(names())}); several are an ensemble"
    add_models(parser, help=file if IS_LIGHT else MODELS_OR_FILES)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all (default: 127.0.0.1, this machine)"
    )
    parser.add_argument(
        "--port", metavar="PORT", type=port, default=8080, help="port; 0 chooses a free one (default: 8080)"
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="do not log requests; warnings and errors are still reported"
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default=FORMATS[0],
        help="of the log: text (default), or one JSON object a line",
    )
    parser.add_argument(
        "--api",
        choices=APIS,
        default=Settings.api,
        help="form of requests; libretranslate: POST /translate and GET /languages also in LibreTranslate's form, for "
        "programs that were written for it (default: %(default)s)",
    )
    if not IS_LIGHT:
        add_checkpoint(parser)
    group = parser.add_argument_group("batches")
    _add_limit(group, "batch_size", "largest number of sentences in a batch")
    group.add_argument(
        "--max-wait-ms",
        metavar="MS",
        type=milliseconds,
        default=2,
        help="time that a sentence waits for others while the server is idle (default: 2)",
    )
    _add_limit(group, "max_queue", "sentences that may wait; further requests get 503 and Retry-After")
    group = parser.add_argument_group("limits of a request")
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=Settings.timeout,
        help="time limit of a request, then 504, which max_seconds in a request lowers; also of its header, its body, "
        "and of an idle connection (default: %(default)s)",
    )
    _add_limit(group, "max_characters", "characters of its texts, else 400")
    _add_limit(group, "max_body_bytes", "size of its body, else 413")
    _add_limit(group, "max_tokens", "tokens of its texts times hypotheses, which is what it costs, else 413")
    _add_limit(
        group,
        "max_sentence_tokens",
        "tokens of a sentence, which is translated at once; longer ones are translated in parts of this length, or "
        "refused with 413 where --split-long allows longer ones",
    )
    _add_limit(group, "max_answer_bytes", "size of the answer, attention included, else 413")
    _add_limit(group, "max_beam_size", "largest beam_size and n_best of a request")
    group = parser.add_argument_group("connections")
    group.add_argument(
        "--max-connections",
        metavar="N",
        type=positive,
        help="connections at a time; if all are busy, further ones get 503 (default: 1000, or as many as the limit of "
        "open files of the process, ulimit -n, has room for)",
    )
    _add_limit(group, "max_sessions", "connections for live translation, WebSocket /live; further ones get 503")
    group.add_argument(
        "--trust-proxy",
        dest="trusted_proxies",
        metavar="ADDRESS",
        type=network,
        action="append",
        default=[],
        help="believe X-Forwarded-For of requests from this address or network, such as 10.0.0.0/8; repeatable "
        "(default: of nobody)",
    )
    group = parser.add_argument_group("access")
    group.add_argument(
        "--api-key",
        metavar="KEY",
        type=any_text,
        help=f"requests must have the header 'Authorization: Bearer KEY'; setting {KEY} in the environment is safer, "
        f"because other users can see options (default: no key is needed)",
    )
    group.add_argument(
        "--cors-origin",
        dest="cors_origins",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="allow pages of this origin, such as https://example.org, to send requests; * for all; repeatable",
    )
    group = parser.add_argument_group("search, if a request sets nothing else (defaults: those of the first model)")
    add_decoding(group, SEARCH)
    if not IS_LIGHT:
        add_device(parser)
        add_plugins(parser)
    return parser


def _add_limit(group: argparse._ArgumentGroup, name: str, help: str) -> None:
    """Add the option of a setting that is a number."""
    option, default = "--" + name.replace("_", "-"), getattr(Settings, name)
    group.add_argument(option, metavar="N", type=positive, default=default, help=f"{help} (default: %(default)s)")


def serve(arguments: argparse.Namespace, *, log: contextlib.ExitStack) -> int:
    """Serve until a signal arrives, which ends the command like the other commands; the log ends with `log`."""
    arguments.models = one_ensemble(arguments)
    log.enter_context(logged(as_json=arguments.log_format == "json", is_quiet=arguments.quiet))
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the package {missing[0]} is not installed; pip install '{PACKAGE}[serve]'")
    if not IS_LIGHT:
        check_ensemble(arguments, models=len(arguments.models))
    settings = _settings(arguments)
    from nmt.serving.server import serve as served

    number = served(
        lambda: _load(arguments),
        settings,
        models=arguments.models,
        host=arguments.host,
        port=arguments.port,
    )
    said, code = ENDINGS[number]
    logging.getLogger("nmt.serving.status").info(said)
    return code


def _load(arguments: argparse.Namespace) -> tuple[Translator, dict[str, Any]]:
    """The model, and the options of the command line."""
    from nmt.library.loading import load

    own: dict[str, Any] = {}
    if not IS_LIGHT:
        own = {name: getattr(arguments, name) for name in ("device", "checkpoint", "plugins")}
        own["precision"] = arguments.precision or "auto"
    translator = load(arguments.models, **own)
    names = [name for name in SEARCH if name != "precision"]
    return translator, given(arguments, names, read=_search_options if IS_LIGHT else None)


def _search_options(given: Sequence[str]) -> dict[str, float]:
    """Options of the engine's searches, which are numbers."""
    try:
        pairs = [pair(text) for text in given]
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--search-option: {error}") from None
    if len(dict(pairs)) < len(pairs):
        raise ConfigError("--search-option: an option is given twice")
    return dict(pairs)


def _settings(arguments: argparse.Namespace) -> Settings:
    key = os.environ.get(KEY) if arguments.api_key is None else arguments.api_key
    if key is not None and (not key.strip() or not key.isascii() or not key.isprintable()):
        name = KEY if arguments.api_key is None else "--api-key"
        raise ConfigError(f"{name}: the key is empty or has other than printable ASCII characters.")
    own = {"max_wait": arguments.max_wait_ms / 1000, "api_key": None if key is None else key.strip()}
    own |= {name: tuple(getattr(arguments, name)) for name in ("trusted_proxies", "cors_origins")}
    others = (field.name for field in fields(Settings) if field.name not in own)
    return Settings(**own, **{name: getattr(arguments, name) for name in others})


if __name__ == "__main__":
    sys.exit(main())
