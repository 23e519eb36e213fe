"""The translator: text in, results out, from any thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from .binding import Glossary, Library, NotCopied
from .errors import ArgumentError, DataError, EngineError, PlaceError, refused, shown
from .options import (
    ENGINE_DETAILS,
    ENGINE_SEARCH_OPTIONS,
    ENGINE_SEARCHES,
    NONE,
    OPTIONS,
    language_token,
    names_of,
    options_of,
)
from .pretrained import located

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final, TypeAlias, overload

    from .binding import Model, Options, Results, Session, Stop
    from .options import Option
    from .results import Request, Result

    Path: TypeAlias = str | os.PathLike[str]
    Chosen: TypeAlias = tuple[Options, tuple[str, ...], dict[str, Any]]
    """Options of a search, requested details, and what is asked for each text that asks for nothing itself."""

DETAILS: Final = ENGINE_DETAILS
WISHES: Final = tuple(name for name in names_of("text", "phrases") if "light" in OPTIONS[name].doors)
"""What is asked for each text."""
NOT_LIVE: Final = {*WISHES, "details", "n_best", "split", "placeholders", "glossary"}
"""What has no meaning while a sentence grows."""


class Translator(NotCopied):
    """A model file, or several as an ensemble; any number of threads can use it at once, and none waits for another.

    What a sentence becomes depends on itself and on the options alone.
    """

    def __init__(
        self,
        path: Path | Sequence[Path],
        *,
        threads: int = 1,
        kernels: str | None = None,
        library: Path | None = None,
    ) -> None:
        """Open `path`, a file from `nmt-export --format engine` or the name of a model of the package, such as `en-de`;
        the models of a list are an ensemble of averaged probabilities.

        Args:
            threads: default number of threads of a call.
            kernels: name of the instruction set to compute with, such as `avx2`; by default the best one.
            library: the compiled engine, if not that of this package.

        Raises EngineError for a missing or damaged file, or for unknown kernels.
        """
        files = list(path) if isinstance(path, Sequence) and not isinstance(path, str | bytes) else [path]
        found = [located(file) for file in files]
        self._model: Model = Library(library or shared_library()).open(found, kernels=kernels)
        self.paths = tuple(os.fspath(file) for file in files)
        """Its files, as they were given."""
        self._defaults = self._model.defaults()._replace(threads=_value(OPTIONS["threads"], threads))

    @property
    def card(self) -> dict[str, Any]:
        """The card of the (first) file: languages, architecture, data, scores."""
        return self.card_of(0)

    def card_of(self, number: int) -> dict[str, Any]:
        """The card of one of several files; `number` is its place, from 0.

        Raises EngineError, which is an IndexError, too, if there is no such file, and if its card is not JSON.
        """
        import json

        if not isinstance(number, int) or not -len(self.paths) <= number < len(self.paths):
            raise PlaceError(f"card_of: there is no file {number!r}; the last one is {len(self.paths) - 1}")
        try:
            found = json.loads(self._model.card(number % len(self.paths)) or b"{}")
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text, which the card is for
        except (ValueError, RecursionError):
            raise EngineError(f"{self.paths[number]}: its card is not JSON") from None
        return found if isinstance(found, dict) else {}

    def cards(self) -> list[dict[str, Any]]:
        """The card of each file; empty where that is no JSON, which does not keep a file from translating."""
        cards: list[dict[str, Any]] = []
        for number in range(len(self.paths)):
            try:
                cards.append(self.card_of(number))
            except EngineError:
                cards.append({})
        return cards

    @property
    def languages(self) -> dict[str, int]:
        """The codes of the languages that a multilingual model translates into, with their source tokens."""
        return self._model.languages()

    @property
    def defaults(self) -> Options:
        """The default options of a search."""
        return self._defaults

    @property
    def kernels(self) -> str:
        """The instruction set that it computes with."""
        return self._model.kernels

    if TYPE_CHECKING:

        @overload
        def translate(self, text: str | Request, *, stop: Stop | None = None, **options: Any) -> Result: ...

        @overload
        def translate(
            self, text: Sequence[str | Request], *, stop: Stop | None = None, **options: Any
        ) -> list[Result]: ...

    def translate(
        self, text: str | Request | Sequence[str | Request], *, stop: Stop | None = None, **options: Any
    ) -> Result | list[Result]:
        """Translate a sentence, or a list of sentences, which is faster than one by one.

        A string is one sentence: line ends in it count as spaces. An empty string has an empty translation.

        Options are those that docs/decoding_options.md has for nmt-light, by their names; their defaults are in the
        file. `shortlist=False` means the same as `none`: all words are allowed. `prefix` and `forbidden` are for every
        text that is no `Request`; for a list of texts, `prefix` may be a list with one for each. Another thread ends
        the call by `stop.set()`.

        Raises StoppedError if it was stopped, EngineError for options that are not allowed, for half of a surrogate
        pair, which is not text, and for anything else that is no text, then also a TypeError.
        """
        chosen = self._options(options)
        given: Any = text
        if isinstance(given, str) or hasattr(given, "text"):
            return self._translated([given], chosen, stop)[0]
        return self._translated(given, chosen, stop)

    def stream(self, lines: Iterable[str | Request], *, window: int = 2000, **options: Any) -> Iterator[Result]:
        """Translate the items of an iterable, lazily and in order, `window` sentences at a time.

        Options and errors are those of `translate`; `window` is a whole number of 1 or more. Wrong arguments raise at
        once.
        """
        if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
            raise ArgumentError(f"lines must be an iterable of strings, not {type(lines).__name__}")
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ArgumentError(f"window must be a whole number of 1 or more, not {window!r}")
        items, chosen = iter(lines), self._options(options)
        windows = iter(lambda: list(islice(items, window)), [])
        return (result for taken in windows for result in self._translated(taken, chosen))

    def texts(self, lines: Sequence[str], **options: Any) -> list[str]:
        """Only the best translations, without the other fields of a `Result`."""
        chosen, _, usual = self._options(options)
        encoded, wishes = _asked(_listed(lines), usual)
        found = self._model.translate(encoded, chosen, wishes=wishes)
        return found.texts().decode("utf-8", "replace").split("\n")[:-1]

    def found(self, lines: Sequence[bytes | Request], **options: Any) -> Results:
        """What the engine has found, in its own terms, for lines in UTF-8 without line ends, or requests."""
        for place, line in enumerate(lines):
            if not isinstance(line, bytes) and not hasattr(line, "text"):
                raise ArgumentError(f"lines[{place}] must be bytes, not {type(line).__name__}")
        chosen, _, usual = self._options(options)
        encoded, wishes = _asked(lines, usual)
        return self._model.translate(encoded, chosen, wishes=wishes)

    def results(self, found: Results, lines: Sequence[str], *, details: Sequence[str] = ()) -> list[Result]:
        """What was `found` for `lines`, as values of Python; `details` as in the options that it was found with."""
        from .results import collected  # late: what it imports takes longer than a sentence to translate

        return [collected(self._model, found, place, line, details) for place, line in enumerate(lines)]

    def glossary(self, terms: Path | Mapping[str, str]) -> Glossary:
        """For the option `glossary` of any number of calls: terms with their translations, or a file of lines of a
        term, a tab and its translation.

        Raises DataError naming file and line for what is not such a file, EngineError for what is no term.
        """
        name, lines = ("glossary", glossary_text(terms).encode()) if isinstance(terms, Mapping) else _read(terms)
        try:
            return self._model.glossary(lines)
        except EngineError as error:
            where = name + (", " if str(error).startswith("line ") else ": ")
            raise DataError(where + str(error)) from None

    def score(self, sources: str | Sequence[str], targets: str | Sequence[str], *, threads: int | None = None) -> Any:
        """The `PairScore` of a given translation, or a list of those of several, as nmt-score has them: each source and
        its target as a whole, by all words. EngineError for lists of unequal length."""
        from .results import scored

        is_one = isinstance(sources, str) and isinstance(targets, str)
        given = ("sources", sources), ("targets", targets)
        sides = [[one] if is_one else _listed(one, name) for name, one in given]
        if len(sides[0]) != len(sides[1]):
            raise EngineError(f"{len(sides[0])} sources but {len(sides[1])} targets; their numbers must be equal")
        encoded = [
            [_encoded(line, f"{name}[{place}]") for place, line in enumerate(side)]
            for (name, _), side in zip(given, sides, strict=True)
        ]
        with self._model.score(encoded[0], encoded[1], self._options({"threads": threads})[0]) as found:
            scores = scored(found)
        return scores[0] if is_one else scores

    def live(self, policy: str = "wait_k", **options: Any) -> Session:
        """A session of live translation: `feed(text)` returns what no longer changes of it, `end()` the rest.

        `options`: that of the policy (`wait` of `wait_k`, `agree` of `local_agreement`, `unread` of `alignatt`), which
        may also follow its name, as in `wait_k,wait=3`, and those of `translate` that are not in `NOT_LIVE`.
        Raises EngineError for others.
        """
        if not isinstance(policy, str):
            raise ArgumentError(f"policy must be a name, not {type(policy).__name__}")
        known = {option.name for option in options_of("light")}
        own = {name: value for name, value in options.items() if name not in known}
        search = {name: value for name, value in options.items() if name in known and value is not None}
        for name, value in search.items():
            if name in NOT_LIVE and value not in (False, NONE, ()):
                raise EngineError(f"{name}: a live session has no such option")
        how = ",".join((policy, *(f"{name}={value}" for name, value in own.items())))
        return self._model.live(how, self._options(search)[0] if search else None)

    def beam_size(self, **options: Any) -> int | None:
        """Hypotheses that a search with these options keeps, or samples; None for greedy search."""
        chosen = self._options(options)[0]
        kept = chosen.n_best if chosen.sample else chosen.beam_size
        return int(kept) if chosen.sample or chosen.beam_size > 1 or chosen.beam_of_one else None

    def close(self) -> None:
        """Give the memory back; also at the end of a `with` block."""
        self._model.close()

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self.paths[0] if len(self.paths) == 1 else f"ensemble of {len(self.paths)} models"
        return f"<Translator {name}, {self._model.kernels if self._model.is_open else 'closed'}>"

    def _options(self, given: dict[str, Any]) -> Chosen:
        """What options ask for."""
        changed: dict[str, Any] = {}
        usual: dict[str, Any] = {}
        details: tuple[str, ...] = ()
        known = {option.name: option for option in options_of("light")}
        for name, value in given.items():
            if value is None:
                continue
            if name not in known:
                why = "the engine does not have it; nmt.load of the run has" if name in OPTIONS else "is not an option"
                raise EngineError(f"{name}: {why}. Allowed: {', '.join(known)}.")
            if name in WISHES:
                usual[name] = value
            elif name == "glossary":
                value = None if value == NONE else value
                changed[name] = value if isinstance(value, Glossary | None) else self.glossary(value)
            elif name == "details":
                if not isinstance(value, Iterable):
                    raise ArgumentError(f"details: {value!r} is not allowed; give a list of names")
                details = (value,) if isinstance(value, str) else tuple(value)
            elif name == "search":
                if value not in ENGINE_SEARCHES:
                    raise EngineError(refused("search", value, ", ".join(ENGINE_SEARCHES), problem="is not known"))
            elif name == "search_options":
                changed |= _search_options(value, samples=given.get("search") == "sample")
            elif name in ("target_language", "domain"):
                changed["target_language"] = self._language_token(given)
            else:
                changed[name] = _value(known[name], value)
        for name in details:
            if name not in DETAILS:
                raise EngineError(f"details: {unknown_detail(name)}")
        search = given.get("search") or "auto"
        changed = {**({"beam_size": 1} if search == "greedy" else {}), **changed}
        options = self._defaults._replace(sample=search == "sample", **changed)
        if options.n_best > options.beam_size and not options.sample:
            if search == "greedy":
                raise EngineError(f"n_best: {options.n_best} are too many: search 'greedy' finds 1 per sentence")
            options = options._replace(beam_size=options.n_best)
        if search == "greedy" and options.beam_size != 1:
            raise EngineError(f"search: 'greedy' follows one hypothesis: beam_size must be 1, not {options.beam_size}")
        prefix = usual.get("prefix")
        _asked([b""] * (len(prefix) if isinstance(prefix, list | tuple) else bool(usual)), usual)
        attention = not {"attention", "alignment"}.isdisjoint(details)
        told = {"attention": attention, "entropies": "entropies" in details}
        return options._replace(beam_of_one=search == "beam", **told), details, usual

    def _language_token(self, given: Mapping[str, Any]) -> int:
        """The token of the language and domain that options ask for, or else of the usual ones; 0 for none."""
        names = {number: code for code, number in self.languages.items()}
        usual, _, own = names.get(self._defaults.target_language, "").partition("+")
        language = given.get("target_language") or usual
        domain = given.get("domain") or ("" if "+" in language else own)
        domain = None if domain in ("", NONE) else domain
        if language in ("", NONE) and (self.languages or domain is None):
            return 0
        found = language_token(self.languages, language or None, domain)
        if isinstance(found, int):
            return found
        raise EngineError(f"{found[0]}: {found[1]}")

    def parts(self, lines: Sequence[str], **options: Any) -> list[list[int]]:
        """The source tokens of each part in which each line would be translated; options are those of `translate`."""
        chosen, *_ = self._options(options)
        with self._model.translate(_asked(_listed(lines), {})[0], chosen, only_cut=True) as found:
            return [_lengths(found, place) for place in range(len(lines))]

    def translated_parts(
        self, lines: Sequence[str | Request], *, stop: Stop | None = None, **options: Any
    ) -> list[tuple[Result, list[int]]]:
        """`translate` of a list; with each result the source tokens of each part in which its line was translated."""
        with self._found(lines, self._options(options), stop) as (found, results):
            return [(result, _lengths(found, place)) for place, result in enumerate(results)]

    def _translated(self, lines: Sequence[str | Request], chosen: Chosen, stop: Stop | None = None) -> list[Result]:
        with self._found(lines, chosen, stop) as (_, results):
            return results

    @contextmanager
    def _found(
        self, lines: Sequence[str | Request], chosen: Chosen, stop: Stop | None
    ) -> Iterator[tuple[Results, list[Result]]]:
        options, details, usual = chosen
        encoded, wishes = _asked(_listed(lines), usual)
        with self._model.translate(encoded, options, wishes=wishes, stop=stop) as found:
            yield (
                found,
                self.results(found, [line if isinstance(line, str) else line.text for line in lines], details=details),
            )


def _lengths(found: Results, line: int) -> list[int]:
    """Tokens of the source of each part, the end symbol not counted."""
    return [len(source) - 1 for source in found.sources(line)]


def shared_library() -> str:
    """The library of this package; EngineError if there is none, as in nmt, where nmt.load compiles it."""
    path = os.path.join(os.path.dirname(__file__), "libnmt_engine.so")
    if not os.path.isfile(path):
        raise EngineError(f"{path}: the engine is not compiled here; use nmt.load, or the package nmt-light")
    return path


def longest_source(cards: Iterable[dict[str, Any]]) -> tuple[int, bool] | None:
    """Tokens of the longest source that all models with these cards have seen in training; None if no card states it.

    Also whether there was such a source: False if only the limit of the training is known.
    """
    found = []
    for card in cards:
        known, limit = card.get("longest_training_source"), card.get("training_max_length")
        longest = known if isinstance(known, int) else limit
        if isinstance(longest, int):
            found.append((longest, longest is known))
    return min(found, key=lambda longest: longest[0], default=None)


def glossary_text(terms: Mapping[str, str]) -> str:
    """The lines of a file with these terms and their translations; EngineError for what can be none."""
    rows = []
    for term, target in terms.items():
        sides = ((term, "glossary: a term"), (target, f"glossary: the translation of {shown(term)}"))
        columns = [" ".join(_encoded(text, name).decode().split()) for text, name in sides]
        if not all(columns):
            raise EngineError(f"glossary: {shown(term)}: the term or its translation is empty")
        rows.append(f" {columns[0]}\t{columns[1]}\n")  # with a space, as # at the start of a line makes it a comment
    if not rows:
        raise EngineError("glossary: has no term. Allowed: one or more with their translations, or none.")
    return "".join(rows)


def _read(path: Path) -> tuple[str, bytes]:
    """The name of a file and its lines, which are UTF-8."""
    from .lines import Pace, decodable, windows  # late, as few ask for it

    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"glossary must be terms with their translations or a file, not {type(path).__name__}")
    name = os.fspath(path)
    try:
        lines, _, problem = decodable(
            [line for some in windows(name, Pace()) for line in some], "strict", name=name, first=1
        )
    except EngineError as error:
        raise DataError(str(error)) from None
    if problem is not None:
        raise DataError(problem)
    return name, b"\n".join(lines)


def unknown_detail(name: str) -> str:
    """The message about a detail that is not in DETAILS."""
    is_of_runs = name in OPTIONS["details"].choices
    problem = "is not available from the engine; nmt-translate has it with the run" if is_of_runs else "is not known"
    return f"{name!r} {problem}. Allowed: {', '.join(DETAILS)}."


def _value(option: Option, value: object) -> Any:
    """A value as the engine takes it; EngineError for one that is not allowed."""
    if value == NONE and option.can_be_off:
        return 0
    if option.kind in ("flag", "file"):  # a shortlist is the file's own
        if isinstance(value, bool):
            return value
        allowed = "True, False" + (f", {NONE}" if option.can_be_off else "")
        raise EngineError(refused(option.name, value, allowed))
    if option.kind == "choice":
        if value in option.choices:
            return option.choices.index(value)
        raise EngineError(refused(option.name, value, ", ".join(option.choices)))
    kinds = int if option.kind == "whole" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not option.least <= value <= option.engine_most:
        raise EngineError(refused(option.name, value, f"{option.least:,} to {option.engine_most:,}"))
    return value


def _search_options(given: object, *, samples: bool) -> dict[str, Any]:
    """The engine's options that the value of `search_options` sets."""
    if not isinstance(given, dict):
        raise ArgumentError(f"search_options must be a dictionary, not {type(given).__name__}")
    found = {}
    for name, value in given.items():
        if name not in ENGINE_SEARCH_OPTIONS:
            allowed = ", ".join(ENGINE_SEARCH_OPTIONS)
            raise EngineError(f"search_options: {refused(name, value, allowed, problem='is not an option')}")
        if not samples:
            raise EngineError(f"search_options: {name}: only the search 'sample' has it")
        try:
            found[name] = _value(ENGINE_SEARCH_OPTIONS[name], value)
        except EngineError as error:
            raise EngineError(f"search_options: {error}") from None
    return found


def _listed(lines: object, name: str = "text") -> Sequence[Any]:
    if isinstance(lines, str | bytes) or not isinstance(lines, Sequence):
        raise ArgumentError(f"text must be a string, or a list of strings, not {type(lines).__name__}")
    for place, line in enumerate(lines):
        if isinstance(line, bytes):  # which only `Translator.found` takes
            raise ArgumentError(f"{name}[{place}] must be a string, not bytes")
    return lines


def _asked(lines: Sequence[Any], usual: dict[str, Any]) -> tuple[list[bytes], list[tuple[bytes, bytes]] | None]:
    """Each text as one line of UTF-8, and what is asked for each; None where nothing is."""
    encoded = [
        line if isinstance(line, bytes) else _encoded(getattr(line, "text", line), f"text[{place}]")
        for place, line in enumerate(lines)
    ]
    if not usual and all(isinstance(line, str | bytes) for line in lines):
        return encoded, None
    wishes, prefix = [], usual.get("prefix")
    prefixes = prefix if isinstance(prefix, list | tuple) else [prefix] * len(lines)
    if len(prefixes) != len(lines):
        raise EngineError(f"prefix: {len(prefixes)} for {len(lines)} texts; give one for each")
    for place, line in enumerate(lines):
        usual = {**usual, "prefix": prefixes[place]}
        own = {name: getattr(line, name, usual.get(name)) for name in WISHES}
        phrases = own["forbidden"] or ()
        phrases = (phrases,) if isinstance(phrases, str) else phrases
        if not isinstance(phrases, list | tuple):
            raise ArgumentError(f"forbidden must be a string or a list of strings, not {type(phrases).__name__}")
        spelled = [_spelled(phrase, place) for phrase in phrases]
        wishes.append((_encoded(own["prefix"] or "", "prefix"), b"\n".join(spelled)))
    return encoded, wishes


def _spelled(phrase: object, place: int) -> bytes:
    """A phrase with its letters composed and decomposed, and with its first one in the other case, one a line."""
    import unicodedata  # late, as few ask for it

    text = _encoded(phrase, "forbidden").decode()
    if not text.strip():
        raise EngineError(f"line {place}: forbidden: a phrase is empty")
    found: dict[str, None] = {}
    for form in (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)):
        word = " ".join(form.split())
        other = word[0].lower() if word[0] != word[0].lower() else word[0].upper()
        found |= {word: None, other + word[1:]: None}
    return "\n".join(found).encode()


def _encoded(line: object, name: str) -> bytes:
    """A text as one line of UTF-8."""
    if not isinstance(line, str):
        raise ArgumentError(f"{name} must be a string, not {type(line).__name__}")
    try:
        return line.replace("\n", " ").replace("\r", " ").encode("utf-8")
    except UnicodeEncodeError:
        raise EngineError(f"{name} holds half of a surrogate pair, which is not text") from None
