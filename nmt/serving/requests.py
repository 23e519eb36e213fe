"""The body of a request: read within its limit, and checked so that every mistake is one line that names the key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.requests import ClientDisconnect, Request

from nmt.errors import LONGEST_VALUE, near_miss, refused, shortened
from nmt.library.values import WISHES
from nmt.library.values import Request as Sentence
from nmt.light.options import MOST, NONE, OPTIONS, Option, command_option, options_of
from nmt.serving import PROGRAM
from nmt.serving.limits import CLIENT_GONE, RefusedError, Settings

JSON: Final = "application/json"
MOST_OBJECTS: Final = 16
"""In a body, which should be one object. That a key has another as its value is shown; many are not worth the time."""
MOST_TERMS: Final = 1000
"""Of a glossary in a request."""
TERMS: Final = (
    "terms and how each must be translated",
    (f"an object of up to {MOST_TERMS:,} terms with their translations, strings that are not empty"),
)
"""What a request has in place of a file with a glossary: its meaning, and what is allowed. No term: no glossary."""
MOST_LISTS: Final = 64
"""The same of lists, whose brackets may also be characters of a text; and of the items of a list that is no text."""
DOOR: Final = "server"
"""This door in the table of options."""


def _key(meaning: str, allowed: str) -> Any:
    """A key of the body that need not be there; `allowed` ends the error of a wrong value."""
    described = _described(meaning, allowed)
    return Field(default=None, description=described.pop("description"), json_schema_extra=described)


def _described(meaning: str, allowed: str) -> dict[str, Any]:
    """What a schema says of a key."""
    return {"description": f"{meaning[0].upper()}{meaning[1:]}: {allowed}", "x-allowed": allowed}


class _Request(BaseModel):
    """What to translate, and how; missing keys have the values of the server and the model."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    text: str | Annotated[list[str], Field(min_length=1, fail_fast=True)] = Field(
        description="A sentence, or a list of sentences; line ends count as spaces",
        json_schema_extra={"x-allowed": "a string, or a list of one string or more"},
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
        """Options of `nmt.library.values.Options` that were given."""
        given = self.model_dump(exclude={"text", "max_seconds", *WISHES}, exclude_none=True)
        return {**given, "glossary": NONE} if given.get("glossary") == {} else given


def _field(option: Option) -> Any:
    """Type and default of an option in a request."""
    phrase = Annotated[str, Field(min_length=1)]
    types: dict[str, Any] = {
        "whole": Annotated[int, Field(ge=option.least)],  # the largest is a setting of the server
        "number": Annotated[float, Field(ge=option.least, le=option.most)],
        "flag": bool,
        "choice": str,
        "name": str,
        "language": str,
        "text": str,
        "phrases": phrase | Annotated[list[phrase], Field(fail_fast=True)],
        "list": str | Annotated[list[str], Field(fail_fast=True)],
        "file": dict[Any, str],  # the lines of a glossary
    }
    if option.kind == "file":
        return types["file"] | None, _key(*TERMS)
    allowed = option.allowed(most=MOST if option.kind == "whole" else None)
    return types[option.kind] | None, _key(option.help if option.kind == "name" else option.meaning, allowed)


TranslateRequest: type[Any] = create_model(
    "TranslateRequest",
    __base__=_Request,
    __doc__=_Request.__doc__,
    **{option.name: _field(option) for option in options_of(DOOR)},
)
"""The body of a request, with all options that the table gives the server."""


def keys_of(*doors: str) -> list[str]:
    """The keys that a request to a server of such models (doors in `nmt.light.options`) may have."""
    return ["text", *(option.name for option in options_of(DOOR, *doors)), "max_seconds"]


def schema_of(settings: Settings, *doors: str) -> dict[str, Any]:
    """The JSON schema of the body for a server of such models: only what these can do."""
    schema: dict[str, Any] = TranslateRequest.model_json_schema()
    known = schema["properties"] = {name: schema["properties"][name] for name in keys_of(*doors)}
    most = {"beam_size": settings.max_beam_size, "n_best": settings.max_beam_size, "max_seconds": settings.timeout}
    for name, number in most.items():
        known[name]["anyOf"][0]["maximum"] = number
        if name in OPTIONS:
            known[name] |= _described(OPTIONS[name].meaning, OPTIONS[name].allowed(most=number))
    for option in options_of(DOOR, *doors):
        for values in (option.only[door] for door in doors if door in option.only):
            known[option.name] |= _described(option.meaning, ", ".join(values))
            for form in known[option.name]["anyOf"]:
                form |= {"enum": values} if form["type"] == "string" else {}
                form |= {"items": {"type": "string", "enum": values}} if form["type"] == "array" else {}
    schema["examples"] = [{"text": "A dog runs in the snow."}, {"text": ["A dog runs.", "A cat sleeps."], "n_best": 3}]
    return schema


class Translation(BaseModel):
    """One translation."""

    text: str
    score: float | None = Field(description="Log-probability divided by the length penalty; null: no translation")


class SentenceAnswer(Translation):
    """The best translation of a sentence; with `details`, also tokens, token_scores, attention, alignment."""

    n_best: list[Translation] | None = Field(None, description="Best first; only if n_best was requested")
    source_tokens: list[str] | None = Field(None, description="Only with the details tokens or attention")
    confidence: float | None = Field(None, description="Only with the detail confidence: that the translation is good")
    notes: list[str] | None = Field(None, description="Notes, such as split or length_limit")


class Answer(BaseModel):
    """One translation for each sentence, in order."""

    translations: list[SentenceAnswer]


class Failed(BaseModel):
    """What was wrong, in one line."""

    error: str


async def read_body(request: Request, *, most: int) -> bytes:
    """The body; RefusedError if it has more than `most` bytes, or the client goes away."""
    encoding = ", ".join(request.headers.getlist("content-encoding")).strip()
    if encoding.lower() not in ("", "identity"):
        raise RefusedError(415, refused("Content-Encoding", encoding, "no such header"))
    size = int(request.headers.get("content-length", 0))
    parts: list[bytes] = []
    if size <= most:
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                if size > most:
                    break
                parts.append(part)
        except ClientDisconnect:
            raise RefusedError(CLIENT_GONE, "the client went away") from None
    if size > most:
        raise RefusedError(413, f"body: too long. Allowed: {most:,} bytes.", headers={"Connection": "close"})
    return b"".join(parts)


def read_request(body: bytes, content_type: str, settings: Settings, *doors: str) -> Any:
    """The `TranslateRequest` of a body; RefusedError for anything that is not allowed. `doors` as in `keys_of`."""
    check_json(content_type)
    check_lists(body, settings)
    return checked_request(read_json(body), settings, *doors)


def check_json(content_type: str, *, also: str = "") -> None:
    """RefusedError unless the header Content-Type says JSON; `also`: what else is allowed."""
    if content_type.partition(";")[0].strip().lower() != JSON:
        allowed = f"{JSON}, {also}" if also else JSON
        raise RefusedError(415, refused("Content-Type", content_type, allowed))


def check_lists(body: bytes, settings: Settings) -> None:
    """RefusedError for a body of many small lists, which take long to read."""
    if body.count(b"[") > settings.max_characters + MOST_LISTS:
        refuse("body: holds lists in lists")


def checked_request(value: Any, settings: Settings, *doors: str) -> Any:
    """The `TranslateRequest` of the value of a body, as `read_request`."""
    if not isinstance(value, dict):
        refuse(f"body: {shown_json(value)} is not allowed")
    # What pydantic would list as a million mistakes is refused at the first one.
    texts = max(settings.max_queue, settings.max_characters)
    for name, given in value.items():
        if name not in TranslateRequest.model_fields:
            raise RefusedError(400, _unknown(name, doors))
        longest = texts if name == "text" or name in WISHES else MOST_LISTS
        if isinstance(given, list) and len(given) > longest:
            refuse(f"{name}: a list of {len(given):,} is too long", f"{longest:,}")
        if isinstance(given, dict) and len(given) > MOST_TERMS:
            refuse(f"{name}: {len(given):,} terms are too many", f"{MOST_TERMS:,}")
    try:
        wanted = TranslateRequest.model_validate(value)
    except ValidationError as error:
        raise RefusedError(400, _worded(error, value)) from None
    _check_text(wanted, settings)
    for name in ("beam_size", "n_best"):
        given = getattr(wanted, name)
        if given is not None and given > settings.max_beam_size:
            refuse(f"{name}: {given:,} is not allowed", f"1 to {settings.max_beam_size:,}")
    if wanted.max_seconds is not None and wanted.max_seconds > settings.timeout:
        refuse(f"max_seconds: {wanted.max_seconds:g} is not allowed", f"at most {settings.timeout:g}")
    return wanted


def _check_text(wanted: Any, settings: Settings) -> None:
    texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
    if len(texts) > settings.max_queue:
        refuse(f"text: {len(texts):,} sentences are too many", f"{settings.max_queue:,}")
    parts = [("text", wanted.text), *((name, getattr(wanted, name) or "") for name in WISHES)]
    for term, target in (wanted.glossary or {}).items():
        if not term.strip() or not target.strip():
            refuse(f"glossary: {shown_json(target)} for {shown_json(term)} is not allowed", TERMS[1])
        parts.append((f"glossary: {shown_json(term)}", term + target))
    characters = 0
    for name, value in parts:
        for place, part in enumerate([value] if isinstance(value, str) else value):
            characters += len(part)
            try:
                part.encode("utf-8")
            except UnicodeEncodeError:
                where = name if isinstance(value, str) else f"{name}[{place}]"
                refuse(f"{where}: holds half of a surrogate pair, which is not text", "Unicode text")
    if characters > settings.max_characters:
        refuse(f"text: {characters:,} characters are too many", f"{settings.max_characters:,}")


def read_json(body: bytes) -> Any:
    objects = 0

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal objects
        objects += 1
        if objects > MOST_OBJECTS:
            refuse("body: holds objects in objects", "one JSON object with the key text")
        return once(pairs)

    try:
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=as_object,
            parse_constant=lambda name: refuse(f"body: {name} is not JSON"),
        )
    except UnicodeDecodeError as error:
        refuse(f"body: is not UTF-8 (byte {error.start})", "a JSON object in UTF-8")
    except json.JSONDecodeError as error:
        refuse(f"body: is not JSON: {error.msg} (line {error.lineno}, column {error.colno})", "a JSON object")
    except RecursionError:
        refuse("body: is nested too deeply")
    except ValueError:  # of a whole number with thousands of digits
        refuse("body: holds a number that is too long")


def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Keys and values, of which none may be given twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            refuse(f"{shortened(name)}: is given twice", "once")
        found[name] = value
    return found


def _unknown(name: str, doors: Sequence[str]) -> str:
    known = keys_of(*doors)
    allowed = f"Allowed: {', '.join(known)}."
    if (option := OPTIONS.get(name)) is None:
        return f"{shortened(name)}: unknown key.{near_miss(name, known)} {allowed}"
    is_set_once = option.is_key and set(doors) <= set(option.doors)
    by = f"; {PROGRAM} has {command_option(name)}" if is_set_once else ""
    return f"{name}: a request cannot set it{by}. {allowed}"


def _worded(error: ValidationError, body: dict[str, Any]) -> str:
    """One mistake: the key, what was wrong, what is allowed."""
    found = error.errors(include_url=False)
    name = str(found[0]["loc"][0])
    extra = TranslateRequest.model_fields[name].json_schema_extra
    allowed = extra["x-allowed"] if isinstance(extra, dict) else ""
    if found[0]["type"] == "missing":
        return f"{name}: missing. Allowed: {allowed}."
    value, where = body[name], name
    if name == "glossary" and isinstance(value, dict):
        term = next(term for term, target in value.items() if not isinstance(target, str))
        return f"{name}: {shown_json(value[term])} for {shown_json(term)} is not allowed. Allowed: {allowed}."
    # For a list, the first wrong item; a union reports one error for each of its members.
    places = [part for item in found if item["loc"][0] == name for part in item["loc"][1:] if isinstance(part, int)]
    if isinstance(value, list) and places:
        value, where = value[places[0]], f"{name}[{places[0]}]"
    return f"{where}: {shown_json(value)} is not allowed. Allowed: {allowed}."


def shown_json(value: object) -> str:
    """A value as the client wrote it, shortened; of a list or an object no more is written than is shown."""
    text = ""
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        text += part
        if len(text) > LONGEST_VALUE and isinstance(value, list | dict):
            return f"{text[:LONGEST_VALUE]} ..."
    return shortened(text)


def refuse(problem: str, allowed: str = "a JSON object with the key text") -> NoReturn:
    raise RefusedError(400, f"{problem}. Allowed: {allowed}.")
