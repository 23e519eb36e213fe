"""Names of parallel text: a prefix of two files, `SOURCE:TARGET`, or one file that has both sides; behind it languages
and domain, as in `corpus@en>de`, `corpus@en<>de` (both directions), `corpus@en>de+medical`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from nmt.registry import FORMS, SETS, TEXTS

Names: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None
"""Texts or files of a key of the configuration: one, a list, or both in sets by the sets' names."""
PACKED = (".gz", ".zst")
"""Endings of packed text."""
CODE = r"[^@:+<>\s]+"
"""The code of a language, or the name of a domain."""
SEVERAL = "mul"
"""The code of ISO 639 for several languages."""
_DIRECTED = re.compile(rf"(.+)@(?:({CODE})(<>|<|>)({CODE}))?(?:\+({CODE}))?")


class TextName(NamedTuple):
    """What a name says."""

    files: tuple[str, ...]
    """A prefix or a file; or the files of source and target."""
    form: str = ""
    """Of one file with both sides, a member of `FORMS`."""
    columns: tuple[str, ...] = ()
    """The columns or keys of source and target, and of what tells documents apart, where they are named."""


class Directed(NamedTuple):
    """What a name says of languages."""

    name: str
    """Without that."""
    languages: tuple[str, str] | tuple[()] = ()
    """Of its files; none for those of the model."""
    arrow: str = ">"
    """`<`: from the second language into the first; `<>`: both ways."""
    tag: str = ""
    """Its domain."""

    def target_tag(self, language: str) -> str:
        """What is put before its sources, such as `>>de<<` or `>>de+medical<<`; `language`: of the model's target."""
        return f">>{self.target(language)}{self.tag and '+' + self.tag}<<"

    def target(self, language: str) -> str:
        """The language of its target; `language`: that of the model."""
        return self.languages[self.arrow != "<"] if self.languages else language


def directed(name: str) -> Directed:
    """What `name` says of languages and domain; all of it is the name of a text if that is nothing."""
    found = _DIRECTED.fullmatch(name)
    if found is None or not (found[2] or found[5]):
        return Directed(name)
    return Directed(found[1], (found[2], found[4]) if found[2] else (), found[3] or ">", found[5] or "")


def as_list(names: Names) -> list[str]:
    """The texts, or files, of a key such as `data.train`: of a text for both directions one for each."""
    both = [[name] for _, name in placed(names, "")]
    for one in both:
        if (found := directed(one[0])).arrow == "<>":
            at = len(found.name) + 1
            one[:] = [one[0][:at] + one[0][at:].replace("<>", arrow) for arrow in "><"]
    return [name for one in both for name in one]


def target_of(names: Names, language: str) -> str:
    """The target language of texts, where it is one; `language`: that of the model."""
    found = {directed(name).target(language) for name in as_list(names)}
    return found.pop() if len(found) == 1 else language


def read_name(name: str) -> TextName:
    """What `name` is if no files have it as their prefix: `corpus.tsv`, `corpus.tsv.gz:3:4`, `text.en:text.de`."""
    first, *others = name.split(":")
    form = unpacked(first).rpartition(".")[2].lower()
    if form in FORMS.names() and len(others) in (0, 2, 3) and all(others):
        return TextName((first,), form, tuple(others))
    return TextName((first, *others) if len(others) == 1 and first and others[0] else (name,))


def unpacked(name: str) -> str:
    """The name without the ending of packed text."""
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def each_file(name: str, change: Callable[[str], str]) -> str:
    """`name` with each file in it changed; all of it is one prefix where that is not two existing files."""
    text = directed(name).name
    found, end = read_name(text), name[len(text) :]
    if len(found.files) == 2 and not all(map(os.path.exists, found.files)):
        return change(text) + end
    return ":".join([*map(change, found.files), *found.columns]) + end


def name_of(value: Any) -> Any:
    """The name that stands for a mapping in a configuration, also in a list; ValueError for what is neither form."""
    if isinstance(value, list):
        return [name_of(one) for one in value]
    return TEXTS.get("mapping")(value) if isinstance(value, Mapping) else value


def named(value: Any) -> Any:
    """The same where texts may be in sets with names, `{NAME: TEXT, ...}`."""
    return SETS.get("named")(value) if isinstance(value, Mapping) else name_of(value)


def placed(names: Names, key: str) -> Iterator[tuple[str, str]]:
    """Each text or file that a key of the configuration names, with its own key, such as `data.dev.NAME.0`."""
    if isinstance(names, str):
        yield key, names
    else:
        for part, own in names.items() if isinstance(names, Mapping) else enumerate(names or ()):
            yield from placed(own, f"{key}.{part}")


def sets_of(names: Names) -> Mapping[str, str | Sequence[str]]:
    """The texts that a key names by the names of their sets; those without are one set, which is called ""."""
    return names if isinstance(names, Mapping) else {"": names} if names is not None else {}
