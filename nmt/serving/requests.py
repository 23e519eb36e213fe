"""The body of a request: read within its limit, and checked so that every mistake is one line that names the key."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request

from nmt.errors import near_miss, printable, shown
from nmt.library.request import WISHES
from nmt.library.request import Request as Sentence
from nmt.serving.refusal import CLIENT_GONE, RefusedError
from nmt.serving.settings import Settings

JSON: Final = "application/json"
DISCARDED: Final = 16
"""A body that is too long, but at most this many times as long as allowed, is read to its end and discarded, because
a client that is still sending would not see the answer."""


def _key(meaning: str, allowed: str, **limits: Any) -> Any:
    """A key of the body that need not be there; `allowed` ends the error of a wrong value."""
    return Field(default=None, description=f"{meaning}: {allowed}", json_schema_extra={"x-allowed": allowed}, **limits)


PHRASES = "a string that is not empty, or a list of such strings"
Phrase = Annotated[str, Field(min_length=1)]
Phrases = Phrase | list[Phrase] | None
Penalty = Annotated[float, Field(ge=0, le=10)]
Count = Annotated[int, Field(ge=1)]


class TranslateRequest(BaseModel):
    """What to translate, and how; missing keys have the values of the server and the model."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    text: str | Annotated[list[str], Field(min_length=1)] = Field(
        description="A sentence, or a list of sentences; line ends count as spaces",
        json_schema_extra={"x-allowed": "a string, or a list of one string or more"},
    )
    n_best: Count | None = _key("Translations of each sentence", "a whole number from 1")
    beam_size: Count | None = _key("Hypotheses kept per sentence by the search", "a whole number from 1")
    search: str | None = _key("Name of the search", "a string, such as beam, greedy or sample")
    length_penalty: Penalty | None = _key("Alpha in ((5 + length) / 6) ** alpha", "a number from 0 to 10")
    coverage_penalty: Penalty | None = _key("Beta of the penalty for unattended words", "a number from 0 to 10")
    no_repeat_ngram: Annotated[int, Field(ge=0)] | None = _key(
        "N: no sequence of N tokens occurs twice", "a whole number from 0"
    )
    replace_unknown: bool | None = _key("Replace unknown words by source words", "true or false")
    placeholders: bool | None = _key("Copy {name}, tags and addresses unchanged", "true or false")
    prefix: str | None = _key("Text that each translation begins with", "a string")
    required: Phrases = _key("Phrases that each translation must contain", PHRASES)
    forbidden: Phrases = _key("Phrases that no translation may contain", PHRASES)
    details: str | list[str] | None = _key(
        "Details of each translation in addition to text and score",
        "a list of details, such as tokens, scores, attention, alignment",
    )
    max_seconds: Annotated[float, Field(gt=0)] | None = _key(
        "Seconds after which the answer is no longer needed", "a number above 0"
    )

    def sentences(self) -> list[Sentence]:
        """Each text with its wishes."""
        texts = [self.text] if isinstance(self.text, str) else self.text
        wishes = {name: value for name in WISHES if (value := getattr(self, name)) is not None}
        return [Sentence(text, **wishes) for text in texts]

    def options(self) -> dict[str, Any]:
        """Options of `nmt.library.options.Options` that were given."""
        return self.model_dump(exclude={"text", "max_seconds", *WISHES}, exclude_none=True)


class Translation(BaseModel):
    """One translation."""

    text: str
    score: float | None = Field(description="Log-probability divided by the length penalty; null: no translation")


class SentenceAnswer(Translation):
    """The best translation of a sentence; with `details`, also tokens, token_scores, attention, alignment."""

    n_best: list[Translation] | None = Field(None, description="Best first; only if n_best was requested")
    source_tokens: list[str] | None = Field(None, description="Only with the details tokens or attention")
    notes: list[str] | None = Field(None, description="Notes, such as split or length_limit")


class Answer(BaseModel):
    """One translation for each sentence, in order."""

    translations: list[SentenceAnswer]


class Failed(BaseModel):
    """What was wrong, in one line."""

    error: str


async def read_body(request: Request, *, most: int) -> bytes:
    """The body; RefusedError if it has more than `most` bytes, or the client goes away."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size <= most:
                parts.append(part)
            elif size > DISCARDED * most:
                break
    except ClientDisconnect:
        raise RefusedError(CLIENT_GONE, "the client went away") from None
    if size > most:
        raise RefusedError(413, f"body: too long. Allowed: {most:,} bytes.", headers={"Connection": "close"})
    return b"".join(parts)


def read_request(body: bytes, content_type: str, settings: Settings) -> TranslateRequest:
    """What a body asks for; RefusedError for anything that is not allowed."""
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise RefusedError(415, f"Content-Type: {shown(content_type)} is not allowed. Allowed: {JSON}.")
    value = _json(body)
    if not isinstance(value, dict):
        _refuse(f"body: {_shown(value)} is not allowed. Allowed: a JSON object with the key text.")
    try:
        wanted = TranslateRequest.model_validate(value)
    except ValidationError as error:
        _refuse(_worded(error, value))
    _check_text(wanted, settings)
    for name in ("beam_size", "n_best"):
        given = getattr(wanted, name)
        if given is not None and given > settings.max_beam_size:
            _refuse(f"{name}: {given:,} is not allowed. Allowed: 1 to {settings.max_beam_size:,}.")
    if wanted.max_seconds is not None and wanted.max_seconds > settings.timeout:
        _refuse(f"max_seconds: {wanted.max_seconds:g} is not allowed. Allowed: at most {settings.timeout:g}.")
    return wanted


def _check_text(wanted: TranslateRequest, settings: Settings) -> None:
    texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
    if len(texts) > settings.max_queue:
        _refuse(f"text: {len(texts):,} sentences are too many. Allowed: {settings.max_queue:,}.")
    parts = {"text": wanted.text} | {name: getattr(wanted, name) or "" for name in WISHES}
    characters = 0
    for name, value in parts.items():
        for place, part in enumerate([value] if isinstance(value, str) else value):
            characters += len(part)
            if not _is_text(part):
                where = name if isinstance(value, str) else f"{name}[{place}]"
                _refuse(f"{where}: holds half of a surrogate pair, which is not text. Allowed: Unicode text.")
    if characters > settings.max_characters:
        _refuse(f"text: {characters:,} characters are too many. Allowed: {settings.max_characters:,}.")


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        _refuse(f"body: is not UTF-8 (byte {error.start}). Allowed: a JSON object in UTF-8.")
    except json.JSONDecodeError as error:
        _refuse(f"body: is not JSON: {error.msg} (line {error.lineno}, column {error.colno}). Allowed: a JSON object.")
    except RecursionError:
        _refuse("body: is nested too deeply. Allowed: a JSON object with the key text.")
    except ValueError:  # of a whole number with thousands of digits
        _refuse("body: holds a number that is too long. Allowed: a JSON object with the key text.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if not _is_text(name):
            _refuse("body: a key holds half of a surrogate pair, which is not text. Allowed: Unicode text.")
        if name in found:
            _refuse(f"{name}: is given twice. Allowed: once.")
        found[name] = value
    return found


def _constant(name: str) -> NoReturn:
    _refuse(f"body: {name} is not JSON. Allowed: a JSON object with the key text.")


def _worded(error: ValidationError, body: dict[str, Any]) -> str:
    """One mistake (unknown keys first): the key, what was wrong, what is allowed."""
    found = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    name = str(found[0]["loc"][0])
    kind = found[0]["type"]
    if kind == "extra_forbidden":
        known = list(TranslateRequest.model_fields)
        return f"{name}: unknown key.{near_miss(name, known)} Allowed: {', '.join(known)}."
    allowed = _allowed(name)
    if kind == "missing":
        return f"{name}: missing. Allowed: {allowed}."
    value, where = body[name], name
    # For a list, the first wrong item; a union reports one error for each of its members.
    places = [part for item in found if item["loc"][0] == name for part in item["loc"][1:] if isinstance(part, int)]
    if isinstance(value, list) and places:
        value, where = value[places[0]], f"{name}[{places[0]}]"
    return f"{where}: {_shown(value)} is not allowed. Allowed: {allowed}."


def _shown(value: object) -> str:
    """A value as the client wrote it, of a long one the beginning and the end."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:40]} ... {text[-10:]}"


def _allowed(name: str) -> str:
    extra = TranslateRequest.model_fields[name].json_schema_extra
    return str(extra["x-allowed"]) if isinstance(extra, dict) else ""


def _refuse(message: str) -> NoReturn:
    raise RefusedError(400, printable(message))
