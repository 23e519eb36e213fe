"""Texts as a configuration describes them: mappings, languages and domains, and the tokens before their sources."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nmt.config.options import check_options
from nmt.config.schema import Config, DataConfig
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import DataError, shown
from nmt.registry import FORMS, TEXTS, TOKENIZERS
from nmt.texts import CODE, SEVERAL, as_list, directed, placed, read_name

_FORMS: Final = "a mapping is {prefix: PREFIX}, {source: FILE, target: FILE} or {file: FILE, columns: [SOURCE, TARGET]}"
_MORE: Final = "languages: [SOURCE, TARGET], directions: one or both, tag: DOMAIN"


@TEXTS.register("mapping")
def name_of_mapping(value: Mapping[str, Any]) -> str:
    """The name that stands for a mapping; ValueError for what is none of the forms."""
    named = {key: one for key, one in value.items() if key not in ("languages", "directions", "tag")}
    if named.keys() == {"prefix"}:
        parts = [named["prefix"]]
    elif named.keys() == {"source", "target"}:
        parts = [named["source"], named["target"]]
    elif named.keys() in ({"file"}, {"file", "columns"}):
        columns = named.get("columns", [])
        if not isinstance(columns, list) or len(columns) not in (0, 2, 3):
            two = "a list of two columns, those of source and target, or three with that of documents"
            raise ValueError(f"columns: {shown(columns)} is not {two}")
        parts = [named["file"], *(str(one) if type(one) is int else one for one in columns)]
        if isinstance(parts[0], str) and not read_name(parts[0]).form:
            raise ValueError(f"file: {shown(parts[0])} has no ending of a form. Allowed: {', '.join(FORMS.names())}.")
    else:
        raise ValueError(f"{shown(dict(value))} is not allowed; {_FORMS}, also with {_MORE}")
    for part in parts:
        if not isinstance(part, str) or not part or ":" in part:
            raise ValueError(f"{shown(part)} is not allowed; names here are text without a colon")
    return ":".join(parts) + _direction(value)


def _direction(value: Mapping[str, Any]) -> str:
    """What a mapping says of languages and domain, as it stands behind a name."""
    languages, directions, tag = value.get("languages"), value.get("directions", "one"), value.get("tag")
    codes = languages if isinstance(languages, list) else [languages]
    for key, code in [("languages", code) for code in codes] + [("tag", tag)]:
        if code is not None and not (isinstance(code, str) and re.fullmatch(CODE, code)):
            raise ValueError(f"{key}: {shown(code)} is not allowed; it is text without white space and @ : + < >")
    if "languages" in value and (len(codes) != 2 or len({*codes}) != 2 or None in codes):
        raise ValueError(f"languages: {shown(languages)} is not a list of two codes, those of source and target")
    if directions not in ("one", "both"):
        raise ValueError(f"directions: {shown(directions)} is not allowed. Allowed: one, both.")
    if directions == "both" and not languages:
        raise ValueError("directions: both needs languages: [SOURCE, TARGET]")
    end = ("<>" if directions == "both" else ">").join(map(str, codes)) if languages else ""
    end += "" if tag is None else f"+{tag}"
    return f"@{end}" if end else ""


@TEXTS.register("tags")
class Tags:
    """The tokens before the sources of a text: that of target language and domain (`data.target_tag`), then that of
    back-translated text (Caswell et al., WMT 2019)."""

    @staticmethod
    def completed(config: Config) -> Config:
        """`config` with the tokens of `data.target_tag` among the symbols of a vocabulary that is to be learned."""
        data = config.data
        options = data.tokenizer_options
        if "symbols" not in options or options["source_model"] or options["target_model"]:
            return config
        texts = [*as_list(data.train), *as_list(data.monolingual)] or [""]
        tags = [directed(name).target_tag(data.target_language) for name in texts]
        symbols = [*dict.fromkeys([*options["symbols"], *tags])]
        return dataclasses.replace(
            config, data=dataclasses.replace(data, tokenizer_options={**options, "symbols": symbols})
        )

    @staticmethod
    def problems(config: Config) -> Iterator[tuple[str, str]]:
        """What does not fit together, as (key, message)."""
        data = config.data
        member = TOKENIZERS.known(data.tokenizer)
        options = None if member is None else check_options(member, data.tokenizer_options, key="")[0]
        if data.monolingual is not None and data.monolingual_tag is not None and member and options is not None:
            problem = member.symbol_problem(data.monolingual_tag, options=options)
            if problem is not None:  # a tag of back-translated text that will not be one token
                yield "data.monolingual_tag", f"'{data.monolingual_tag}' {problem}"
        if data.target_tag and options is not None and not hasattr(options, "symbols"):
            yield "data.target_tag", f"the tokenizer '{data.tokenizer}' has no such tokens. Allowed: sentencepiece."
        for key in ("guided_alignment", "wait"):
            if data.target_tag and getattr(config.training, key) is not None:
                yield f"training.{key}", "is not possible with data.target_tag, whose token is no word of the source"
        if data.target_language == SEVERAL and not data.target_tag:
            yield "data.target_tag", f"must be true where data.target_language is {SEVERAL}: it says into which one"
        for key in ("train", "monolingual", "dev", "test"):
            for place, name in placed(getattr(data, key), f"data.{key}"):
                for problem in _problems_of(name, data):
                    yield place, problem

    @staticmethod
    def of(data: DataConfig, tokenizer: Any, *texts: str) -> list[list[int]]:
        """The tokens of each text, in the order of their files, of some keys (`train`, `monolingual`, `dev`, `test`);
        empty if no text has any.

        Raises DataError, naming the key, for one that is not a token of the source vocabulary.
        """
        tags = []
        for key in texts:
            for name in as_list(getattr(data, key)):
                wanted = [directed(name).target_tag(data.target_language)] if data.target_tag else []
                wanted += [data.monolingual_tag] if key == "monolingual" and data.monolingual_tag is not None else []
                tags.append([_token(tokenizer, symbol, key) for symbol in wanted])
        return tags if any(tags) else []


def _problems_of(name: str, data: DataConfig) -> Iterator[str]:
    """What is wrong with what the name of a text says."""
    if directed(name).tag and not data.target_tag:
        yield f"the tag {directed(name).tag!r} has no effect without data.target_tag: true"
    for one in as_list(name):
        text = directed(one)
        languages = text.languages[::-1] if text.arrow == "<" else text.languages
        sides = {"source": data.source_language, "target": data.target_language}
        for place, (side, language) in enumerate(sides.items()):
            if not languages and language == SEVERAL:
                yield f"needs languages: [SOURCE, TARGET], as data.{side}_language is {SEVERAL}"
            elif languages and language not in (languages[place], SEVERAL):
                yield (
                    f"its {side} is {languages[place]!r}, but data.{side}_language is {language!r}; where a model has "
                    f"several it is {SEVERAL}"
                )


def _token(tokenizer: Any, symbol: str, key: str) -> int:
    found: int | None = tokenizer.source_symbol(symbol)
    if found is not None and found >= len(SPECIAL_TOKENS):
        return found
    what = "is a special symbol" if found is not None else "is not one token of the source vocabulary"
    is_own = key == "monolingual"
    instead = "; data.monolingual_tag: null uses no tag" if is_own else ""
    raise DataError(
        f"data.{'monolingual_tag' if is_own else key}: {symbol!r} {what}; a tokenizer learned with "
        f"data.tokenizer_options.symbols: ['{symbol}'] has it{instead}"
    )
