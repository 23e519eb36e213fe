"""The options of a search, each described once: for commands, library, server, engine, ONNX and documentation.

A door is a way in which a model is used; what a door has is read from this table, and so is what it refuses by name.
The package imports nothing of nmt and little of Python, so that every door can import this file. Tests compare the
table with `nmt.config.schema.DecodingConfig`, `nmt.library.values.Options` and `nmt_options` of nmt_engine.h, which
name the options for type checkers and compilers.
"""

from __future__ import annotations

from .errors import shown
from .formats import FORMATS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

DESCRIPTION: Final = """Translate text line by line, by default from standard input to standard output. The output keeps
the order of the input, an empty line gives an empty line, and lines from a slow pipe are translated as they arrive."""
"""Of the commands that translate."""
DOORS: Final = {
    "run": "a run or an averaged checkpoint",
    "folder": "a folder of `nmt-export`",
    "file": "a `.nmt` file in the commands of nmt and `nmt.load`",
    "light": "a `.nmt` file in `nmt-light` and `nmt_light.Translator`",
    "server": "a request to `nmt-serve`",
    "onnx": "ONNX graphs, whose `config.json` has it for the caller's own search",
    "browser": "`engine.js`",
}
"""Where an option can be given, and in which form the model is there."""
NONE: Final = "none"
"""Value that switches off a setting of the model's configuration."""
AUTO: Final = "auto"
MOST: Final = 10**15
"""Largest number where none is given."""
STRONGEST: Final = 10
"""Largest penalty, or weight of one; scores of long sentences underflow far above it."""
ENGINE_SEARCHES: Final = (AUTO, "beam", "greedy", "sample")
"""Searches of the engine."""
ENGINE_DETAILS: Final = ("tokens", "scores", "entropies", "attention", "alignment")
"""Details of a translation that the engine knows."""
TORCH: Final = ("run", "folder")
ENGINE: Final = ("file", "light", "browser")


class Option:
    """One option."""

    def __init__(
        self,
        kind: str,
        meaning: str,
        more: str = "",
        *,
        default: Any = None,
        least: Any = 0,
        most: Any = MOST,
        engine_most: Any = None,
        words: Sequence[str] = (),
        choices: Sequence[str] = (),
        metavar: str | None = None,
        doors: Sequence[str] = (),
        only: dict[str, Sequence[str]] | None = None,
        is_key: bool = True,
        needs: str = "",
        only_rounding: bool = False,
        also: str = "",
    ) -> None:
        """
        Args:
            kind: `whole`, `number`, `flag`, `name`, `choice`, `file`, `model`, `language`, `pairs`, `weights`, `text`,
                `phrases` or `list`.
            meaning: in a few words, as a command's --help has it.
            more: sentences that the documentation has in addition.
            default: value in a configuration that does not have the key.
            least, most: range of a number, both included.
            engine_most: largest number of the engine, where that is less.
            words: what may be given in place of a value of this kind; `none` switches the option off.
            choices: all values of a `choice` or a `list`, known ones of a `name`.
            metavar: the value's name in --help.
            doors: names in DOORS.
            only: by door the values that it has, where these are not all.
            is_key: whether it is a key of the section `decoding`; the others are given with a call.
            needs: the option without which it has no effect.
            only_rounding: whether it changes translations by rounding alone.
            also: names in other toolkits, separated by spaces.
        """
        self.name = ""
        """Key of `decoding`, keyword of the library and key of a request; set by the table."""
        self.kind, self.meaning, self.more, self.default = kind, meaning, more, default
        self.least, self.most, self.engine_most = least, most, most if engine_most is None else engine_most
        self.words, self.choices, self.metavar = tuple(words), tuple(choices), metavar
        self.doors, self.only = tuple(doors), only or {}
        self.is_key, self.needs, self.only_rounding = is_key, needs, only_rounding
        self.also = tuple(also.split())

    @property
    def can_be_off(self) -> bool:
        """Whether `none` switches it off."""
        return NONE in self.words

    @property
    def is_number(self) -> bool:
        """Whether the engine has it as a number: of a choice, the place of the value."""
        return self.kind in ("whole", "number", "flag", "choice")

    def number(self, value: Any) -> float:
        """The number of a value."""
        return float(self.choices.index(value) if self.kind == "choice" else value)

    def of_number(self, number: float) -> Any:
        """The value of a number."""
        return self.choices[int(number)] if self.kind == "choice" else number

    @property
    def asks_nothing(self) -> tuple[Any, ...]:
        """Values that request nothing, which a door without the option accepts."""
        return (NONE,) if self.can_be_off else () if self.default is None else (self.default,)

    @property
    def help(self) -> str:
        """What --help says."""
        if self.kind == "name":
            return f"{', '.join(self.choices)}, a plugin's search, or {self.meaning}"
        return f"{self.meaning} ({self.least:g} to {self.most:g})" if self.kind == "number" else self.meaning

    def allowed(self, *, most: Any = None) -> str:
        """What may be given, in words; `most`: a smaller largest number."""
        most = self.most if most is None else most
        first = {
            "whole": f"a whole number from {self.least:g}" + ("" if most == MOST else f" to {most:,.0f}"),
            "number": f"a number from {self.least:g} to {most:g}",
            "flag": "true or false",
            "name": "a string, such as beam, greedy or sample",
            "choice": ", ".join(self.choices),
            "text": "a string",
            "phrases": "a string that is not empty, or a list of such strings",
            "list": f"a list of {self.name}, such as {', '.join(ENGINE_DETAILS)}",
            "file": "the name of a file",
            "model": "the name of a model",
            "language": f"the code of a {self.name.removeprefix('target_')} of the model",
            "pairs": "options of the search",
            "weights": "a list of numbers above 0",
        }[self.kind]
        return ", or ".join((first, *self.words))


OPTIONS: Final = {
    "search": Option(
        "name", "auto: greedy for a beam size of 1, else beam",
        "In a configuration `greedy` needs a `beam_size` of 1.", default=AUTO, metavar="NAME",
        choices=("beam", "greedy", "sample", "noisy_beam", "diverse_beam", "mbr"),
        doors=(*TORCH, *ENGINE, "server", "onnx"), only=dict.fromkeys(ENGINE, ENGINE_SEARCHES),
    ),
    "search_options": Option(
        "pairs", "option of the search, such as temperature=0.7; repeatable",
        "[All options](configuration.md#searches-decodingsearch_options); the engine has those of `sample`.",
        default={}, metavar="KEY=VALUE", doors=(*TORCH, *ENGINE),
    ),
    "beam_size": Option(
        "whole", "hypotheses kept per sentence", default=4, least=1, most=10000, engine_most=1000,
        metavar="N", doors=(*TORCH, *ENGINE, "server", "onnx"), also="beam beam_width",
    ),
    "n_best": Option(
        "whole", "number of translations of each line",
        "A smaller beam is widened; in a configuration it is an error.",
        default=1, least=1, engine_most=1000, metavar="N", doors=(*TORCH, *ENGINE, "server"),
        also="nbest",
    ),
    "length_penalty": Option(
        "number", "exponent A of the length by which scores are divided",
        "The end symbol counts.",
        default=0.6, most=STRONGEST, metavar="A", doors=(*TORCH, *ENGINE, "server", "onnx"),
        also="lenpen beam_alpha decode_alpha length_penalty_alpha",
    ),
    "length_normalization": Option(
        "choice", "scores are divided by ((5+length)/6)**A (gnmt), or by length**A (power)",
        "Marian and OPUS-MT: `power`.",
        default="gnmt", choices=("gnmt", "power"), doors=(*TORCH, *ENGINE, "server", "onnx"),
        also="normalize normalize_scores",
    ),
    "coverage_penalty": Option(
        "number", "weight of the penalty for source words without attention",
        "[controlling.md](controlling.md#coverage-penalty).",
        default=0.0, most=STRONGEST, metavar="B", doors=(*TORCH, *ENGINE, "server"),
    ),
    "max_length_offset": Option(
        "whole", "how many more tokens than its source a translation may have",
        "With `max_length_factor` F: N more than F times as many.",
        default=50, most=10**6, metavar="N", doors=(*TORCH, *ENGINE, "onnx"),
        also="decode_length max_output_length",
    ),
    "max_length_factor": Option(
        "number", "how many times as many tokens as its source a translation may have, and max_length_offset more",
        "Rounded down.", default=1.0, most=STRONGEST, metavar="F",
        doors=(*TORCH, *ENGINE, "onnx"), also="max_len_a",
    ),
    "min_length": Option(
        "whole", "smallest number of tokens of a translation",
        "Without the end symbol.", default=0, engine_most=10**6,
        metavar="N", doors=(*TORCH, *ENGINE), also="min_output_length min_len min_decoding_length",
    ),
    "no_repeat_ngram": Option(
        "whole", "no sequence of N tokens occurs twice in a translation; 0: no limit", default=0,
        engine_most=2**31 - 1, metavar="N", doors=(*TORCH, *ENGINE, "server"),
        also="no_repeat_ngram_size block_ngram_repeat",
    ),
    "repeat_penalty": Option(
        "number", "above 1, tokens that the translation already has become less probable; 1: no penalty",
        "Logits (of an ensemble: mean log-probabilities) are divided by it, negative ones multiplied.",
        default=1.0, least=0.01, most=STRONGEST, metavar="R", doors=(*TORCH, *ENGINE, "server"),
        also="repetition_penalty",
    ),
    "target_language": Option(
        "language", "code of the language to translate into, for a model that has several, such as deu",
        "A line without its token, `>>deu<<`, gets it.",
        words=(NONE,), metavar="CODE", doors=(*TORCH, *ENGINE, "server"), also="tgt_lang",
    ),
    "domain": Option(
        "language", "domain of the text, for a model that has several, such as medical",
        "One with which the target language was trained; its token is then `>>deu+medical<<`.",
        words=(NONE,), metavar="NAME", doors=(*TORCH, *ENGINE, "server"),
    ),
    "split": Option(
        "choice", "translate each sentence of a line by itself: always, never, or as the training text was (auto)",
        "[controlling.md](controlling.md#sentence-splitting).",
        default=AUTO, choices=(AUTO, "sentences", NONE), doors=(*TORCH, *ENGINE, "server"),
    ),
    "capitals": Option(
        "choice", "lower: translate lines in capitals by their small letters, and put the translation in capitals",
        "[controlling.md](controlling.md#lines-in-capitals).",
        default="keep", choices=("keep", "lower"), doors=(*TORCH, *ENGINE, "server"),
    ),
    "split_long": Option(
        "whole", "translate a sentence of more than N source tokens in parts",
        "[controlling.md](controlling.md#long-lines).",
        default=1000, least=1, engine_most=2**31 - 1, words=(NONE,), metavar="N|none",
        doors=(*TORCH, *ENGINE, "onnx"),
    ),
    "batch_tokens": Option(
        "whole", "largest batch: source tokens times beam size",
        "`auto`: 16384, or fewer for a large vocabulary. No effect in the engine.",
        default=AUTO, least=1, words=(AUTO,), metavar="N|auto", doors=(*TORCH, "file"),
        only_rounding=True,
    ),
    "shortlist": Option(
        "file", "file of nmt-shortlist with the words allowed for each source word; 'none': all words are allowed",
        "A `.nmt` file has its own; `nmt-light --no-shortlist`, in the browser `shortlist: false`.",
        words=(NONE,), metavar="FILE", doors=(*TORCH, *ENGINE),
        only={"file": (NONE,), "light": (NONE,), "browser": (NONE,)},
    ),
    "language_model": Option(
        "model",
        "run of a language model with the same target vocabulary, whose scores are added in each step; 'none': no"
        " language model",
        words=(NONE,), metavar="MODEL", doors=("run", "folder"), also="lm_path",
    ),
    "language_model_weight": Option(
        "number", "weight of the language model's log-probabilities (default: 0.2)", most=STRONGEST,
        metavar="W", doors=TORCH, needs="language_model", also="lm_weight",
    ),
    "precision": Option(
        "choice",
        "number format of the computation; int8: matrices of the decoder, and of the encoder of a transformer",
        "`auto`: bf16 where it is faster, else fp32; of a folder, its format. In Python of `nmt.load`.",
        default=AUTO, choices=(AUTO, "fp32", "bf16", "int8"), doors=TORCH, only_rounding=True,
    ),
    "replace_unknown": Option(
        "flag", "replace each unknown word in the translation by the source word it attends to most",
        "[controlling.md](controlling.md#unknown-words).",
        default=False, doors=(*TORCH, *ENGINE, "server"),
    ),
    "placeholders": Option(
        "flag", "copy {name}, <tag>, web and e-mail addresses unchanged, each as often as in the source",
        "[All forms](controlling.md#placeholders).", default=False,
        doors=(*TORCH, *ENGINE, "server"),
    ),
    "glossary": Option(
        "file", "file of lines 'term TAB translation': how terms must be translated; 'none': no glossary",
        "In requests and Python also `{\"cat\": \"Kater\"}`.",
        words=(NONE,), metavar="FILE", doors=(*TORCH, *ENGINE, "server"),
    ),
    "ensemble_weights": Option(
        "weights", "relative weights of the models of an ensemble, such as 2,1",
        "By default equal.",
        words=(NONE,), metavar="W,W...|none", doors=TORCH, needs="several models",
    ),
    "ensemble_mean": Option(
        "choice", "what an ensemble averages (default: probabilities)",
        "With `log_probabilities` a word that is impossible for one model is impossible.",
        default="probabilities", choices=("probabilities", "log_probabilities"), doors=TORCH, needs="several models",
        also="ensemble_mode",
    ),
    "prefix": Option(
        "text", "text that each translation begins with", "On a command line a file with a line for each.",
        is_key=False, doors=(*TORCH, *ENGINE, "server"),
    ),
    "required": Option(
        "phrases", "phrases that each translation must contain", "On a command line `require` of `--constraints`.",
        is_key=False, doors=(*TORCH, "server"),
    ),
    "forbidden": Option(
        "phrases", "phrases that no translation may contain", "On a command line `forbid` of `--constraints`.",
        is_key=False, doors=(*TORCH, *ENGINE, "server"),
    ),
    "details": Option(
        "list", "details of each translation in addition to text and score",
        "On a command line `--with`: [controlling.md](controlling.md#more-of-each-translation).",
        default=(), choices=(*ENGINE_DETAILS, "heads", "confidence"), is_key=False,
        doors=(*TORCH, "file", "light", "server"),
        only={"file": (*ENGINE_DETAILS, "confidence"), "light": ENGINE_DETAILS},
    ),
    "scores": Option(
        "flag", "false leaves the scores out (NaN), which makes greedy search faster",
        "A command decides it by `--format`.", default=True, is_key=False, doors=(*TORCH, *ENGINE),
    ),
    "threads": Option(
        "whole", "threads to compute with (default: one for each CPU)",
        "In Python 1 by default.", least=1, engine_most=1024, metavar="N",
        is_key=False, doors=("light",), only_rounding=True,
    ),
}  # fmt: skip
"""All options by name, in the order of documentation and --help."""
ENGINE_SEARCH_OPTIONS: Final = {
    "temperature": Option("number", "what logits are divided by", default=1.0, least=0.0001, most=10000),
    "top_k": Option("whole", "draw among so many words", default=0, most=2**31 - 1),
    "top_p": Option("number", "draw among words of this probability together", default=1.0, least=0.0001, most=1),
    "seed": Option("whole", "seed of the samples", default=1, least=-(2**31), most=2**31 - 1),
}
"""`search_options` of the engine for samples; its options have these names."""
LIVE: Final = {"wait_k": "wait", "local_agreement": "agree", "alignatt": "unread"}
"""The engine's policies of live translation, and the option of each."""
for _name, _option in (*OPTIONS.items(), *ENGINE_SEARCH_OPTIONS.items()):
    _option.name = _name


def options_of(*doors: str) -> Iterator[Option]:
    """The options that all of some doors have."""
    return (option for option in OPTIONS.values() if set(doors) <= set(option.doors))


def language_token(languages: Mapping[str, int], code: str | None, domain: str | None = None) -> int | tuple[str, str]:
    """The token of a target language, such as `de` or, with a domain, `de+medical`; else the option that is wrong, and
    what is wrong with it."""
    language, _, own = (code or "").partition("+")
    other = own if domain not in (None, own) else ""  # than `domain`
    found = languages.get(f"{language}+{domain or own}" if domain or own else language)
    if found is not None and not other:
        return found
    name, given, allowed = "target_language", code, dict.fromkeys(known.partition("+")[0] for known in languages)
    if language in allowed or not (languages or code):
        name, given = "domain", domain or own or None
        among = [code] if code and other else languages
        allowed = {known.partition("+")[2] or NONE: None for known in among if known.partition("+")[0] == language}
    what = name.removeprefix("target_")
    said = "is needed by this model" if given is None else f"{shown(given)} is no {what} of this model"
    if name == "domain" and code:
        said += f" with target_language {shown(code if other else language)}"
    return name, f"{said}. Allowed: {', '.join(allowed) or f'none, as it has one {what}'}."


def names_of(*kinds: str) -> tuple[str, ...]:
    """The names of the options of some kinds, such as `file`."""
    return tuple(name for name, option in OPTIONS.items() if option.kind in kinds)


def as_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as keys of the section `decoding`: `none` is None where it switches something off."""
    off = {name for name, option in OPTIONS.items() if option.can_be_off}
    return {name: None if name in off and value == NONE else value for name, value in options.items()}


def command_option(name: str) -> str:
    """The option of a command line that sets the option `name`."""
    return {"search_options": "--search-option", "details": "--with"}.get(name, "--" + name.replace("_", "-"))


def add_texts(parser: Any, *, details: Any, more: str = "", wishes: str) -> None:
    """Add the options of a command that translates for its text. `details`: what reads their names; `more` of them."""
    add = parser.add_argument
    file = "file with a line for each input line"
    add("-i", "--input", metavar="FILE", help="text to translate; may be .gz (default: standard input)")
    written = "file to write; it appears when it is complete (default: standard output)"
    add("-o", "--output", metavar="FILE", help=written)
    add(
        "--format",
        choices=tuple(FORMATS),
        default="text",
        help="text (default): a line for each input line, or exactly N lines with --n-best N (empty ones if there are "
        "fewer); moses: 'line ||| text ||| score= X ||| X' for each translation; jsonl: a JSON object for each input "
        "line",
    )
    add(
        "--with",
        dest="details",
        metavar="LIST",
        type=details,
        default=(),
        help="extra keys of --format jsonl, separated by commas: tokens, scores (of the tokens), entropies (of their "
        f"distributions), attention, {more}alignment",
    )
    add(
        "--alignment",
        metavar="FILE",
        help="file to write: for each input line the word alignment of the best translation in Pharaoh's format, such "
        "as '0-0 1-2' (source word first, counted from 0)",
    )
    add("--prefix", metavar="FILE", help=f"{file}: the beginning of its translation, or empty")
    add("--constraints", metavar="FILE", help=f"{file}: a JSON object with any of {wishes}, or empty")
