"""Requests and answers in LibreTranslate's form, for programs that were written for it: nmt-serve --api libretranslate.

A request is JSON, or a form as browsers send it: `q` (a text, or a list), `source`, `target`, and if wanted `format`,
`alternatives`, `api_key`. Each line of a text is translated by itself, and its line ends stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from nmt.errors import near_miss, shortened
from nmt.serving.limits import RefusedError, Settings
from nmt.serving.requests import (
    MOST_TERMS,
    check_json,
    checked_request,
    once,
    read_json,
    refuse,
    shown_json,
)
from nmt.texts import SEVERAL

FORM: Final = "application/x-www-form-urlencoded"
ALLOWED: Final = {
    "q": "a string, or a list of one string or more",
    "source": "the code of a language",
    "target": "the code of a language",
    "format": "text, html",
    "alternatives": "a whole number from 0",
    "api_key": "a string",
}
"""The keys of a request, and their values."""
AUTO: Final = "auto"
"""As the source: the only language that the model reads. Nothing is detected."""
_NAMES: Final = (
    "ar=Arabic bg=Bulgarian bn=Bengali ca=Catalan cs=Czech da=Danish de=German el=Greek en=English eo=Esperanto "
    "es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician he=Hebrew hi=Hindi "
    "hr=Croatian hu=Hungarian id=Indonesian is=Icelandic it=Italian ja=Japanese ko=Korean lt=Lithuanian lv=Latvian "
    "mk=Macedonian ms=Malay mt=Maltese nb=Norwegian nl=Dutch nn=Nynorsk no=Norwegian pl=Polish pt=Portuguese "
    "ro=Romanian ru=Russian sk=Slovak sl=Slovenian sq=Albanian sr=Serbian sv=Swedish sw=Swahili ta=Tamil "
    "th=Thai tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu vi=Vietnamese zh=Chinese"
)
NAMES: Final = dict(pair.split("=") for pair in _NAMES.split())
"""Of languages; a client shows them to people. Another language is shown by its code."""


class Languages(NamedTuple):
    """What the model translates from, and to."""

    sources: tuple[str, ...]
    """Of a model that reads several, those that it translates into."""
    targets: tuple[str, ...]
    """Of a model with several, by their tokens."""
    are_chosen: bool
    """Whether each request has to say which of several."""

    @classmethod
    def of(cls, facts: Mapping[str, str], several: Sequence[str]) -> Languages:
        """`facts` of a service's model, and its `languages`."""
        source, targets = facts["source_language"], tuple(several) or (facts["target_language"],)
        return cls(targets if source == SEVERAL else (source,), targets, bool(several))

    def listed(self) -> list[dict[str, Any]]:
        """The answer to GET /languages."""
        found = {code: {"code": code, "name": NAMES.get(code, code), "targets": []} for code in self.targets}
        for code in self.sources:
            others = [target for target in self.targets if target != code or len(self.sources) == 1]
            found[code] = {"code": code, "name": NAMES.get(code, code), "targets": others}
        return list(found.values())


class Wanted(NamedTuple):
    """A request in this form, and what it is in nmt's own."""

    request: Any
    """The `TranslateRequest` of all lines of all texts."""
    lines: list[int]
    """How many each text has."""
    is_list: bool
    alternatives: int
    """How many translations besides the best one."""

    def answer(self, records: Sequence[str]) -> bytes:
        """The body of the answer; `records` are answers to the lines, JSON."""
        found, texts, others = iter(records), [], []
        for number in self.lines:
            lines = [json.loads(next(found)) for _ in range(number)]
            texts.append("\n".join(line["text"] for line in lines))
            more = [[one["text"] for one in line.get("n_best", ())][1:] for line in lines]
            most = max(map(len, more), default=0)
            filled = [
                own + [line["text"] if not own else own[-1]] * (most - len(own))
                for own, line in zip(more, lines, strict=True)
            ]
            others.append(["\n".join(parts) for parts in zip(*filled, strict=True)])
        answer: dict[str, Any] = {"translatedText": texts if self.is_list else texts[0]}
        if self.alternatives:
            answer["alternatives"] = others if self.is_list else others[0]
        return json.dumps(answer, ensure_ascii=False).encode()


def is_meant(value: object) -> bool:
    """Whether a body is in this form, and not in nmt's own, in which the server's page asks."""
    return not isinstance(value, dict) or "text" not in value


def read_body_of(body: bytes, content_type: str) -> Any:
    """The value of a body, JSON or a form; RefusedError for anything else."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        check_json(content_type, also=FORM)
        return read_json(body)
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=MOST_TERMS,
        )
    except ValueError:
        refuse("body: is not a form in UTF-8", "q, source and target, URL-encoded")
    found = once(pairs)
    if isinstance(number := found.get("alternatives"), str) and number.isdecimal() and len(number) < 10:
        found["alternatives"] = int(number)
    return found


def read_wanted(value: Any, languages: Languages, settings: Settings, *doors: str) -> Wanted:
    """What a body asks for; RefusedError names the key of a mistake and what is allowed. `doors` as in `keys_of`."""
    if not isinstance(value, dict):
        refuse(f"body: {shown_json(value)} is not allowed", "a JSON object with the keys q, source and target")
    for name in value:
        if name not in ALLOWED:
            guess = near_miss(name, list(ALLOWED))
            raise RefusedError(400, f"{shortened(name)}: unknown key.{guess} Allowed: {', '.join(ALLOWED)}.")
    for name in ("q", "source", "target"):
        if name not in value:
            refuse(f"{name}: missing", ALLOWED[name])
    texts, kind = value["q"], value.get("format", "text")
    is_list, number = isinstance(texts, list), value.get("alternatives", 0)
    texts = texts if is_list else [texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        refuse(f"q: {shown_json(value['q'])} is not allowed", ALLOWED["q"])
    _check(value, "source", *languages.sources, AUTO)
    _check(value, "target", *languages.targets)
    _check({"format": kind}, "format", "text", "html")
    most = settings.max_beam_size - 1
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        refuse(f"alternatives: {shown_json(number)} is not allowed", f"a whole number from 0 to {most:,}")
    lines = [text.split("\n") for text in texts]
    own: dict[str, Any] = {"text": [line for text in lines for line in text]}
    own |= {"placeholders": True} if kind == "html" else {}
    own |= {"n_best": number + 1} if number else {}
    own |= {"target_language": value["target"]} if languages.are_chosen else {}
    return Wanted(checked_request(own, settings, *doors), [len(text) for text in lines], is_list, number)


def _check(value: Mapping[str, Any], name: str, *allowed: str) -> None:
    if value[name] not in allowed:
        refuse(f"{name}: {shown_json(value[name])} is not allowed", ", ".join(allowed))
