"""YAML as users expect it, read and written: 5e-4 is a number, `no` is a word, and duplicate keys are reported."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from nmt.errors import ConfigError, printable

_DEEPEST = 50
"""Levels of nesting."""
_MOST_NODES = 10_000
"""Values of a document with its aliases expanded: a few nested aliases can expand to billions."""
_NO_FOLDING = 1 << 30
"""Columns of a written line."""
_MOST_DIGITS = 1000
"""Digits of an integer."""
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, without tags, and bounded.

    Refused input raises while it is read, before anything is built from it.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._sizes: dict[int, int] = {}  # by id of a node: how many nodes it stands for

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise yaml.MarkedYAMLError(problem=f"tags such as {tag} are not allowed", problem_mark=event.start_mark)
        if self._depth == _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested more than {_DEEPEST} deep", problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and id(node) not in self._sizes:
            self._sizes[id(node)] = self._size(node)
        return node

    def _size(self, node: yaml.Node) -> int:
        problem = None
        size = 1
        if isinstance(node, yaml.ScalarNode):
            problem = "NUL and lone surrogates are not allowed" if _NOT_TEXT.search(node.value) else None
        else:
            pairs = node.value if isinstance(node, yaml.MappingNode) else [(item,) for item in node.value]
            size += sum(self._sizes.get(id(item), 1) for pair in pairs for item in pair)
            problem = f"more than {_MOST_NODES:,} values, aliases written out" if size > _MOST_NODES else None
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return size


# PyYAML follows YAML 1.1, in which `no` is False, 012 is octal and 5e-4 is a string.
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), list("~nN") + [""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:[tT]rue|TRUE|[fF]alse|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int | str:
    text = loader.construct_scalar(node)
    # Python refuses to read thousands of digits; as text they are reported by every check of an integer.
    return int(text) if len(text) <= _MOST_DIGITS else str(text)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    """Keys are text, whatever they look like; of a repeated key the first one is kept, see `_repeated`."""
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key_node.start_mark)
        value = loader.construct_object(value_node, deep=True)
        found.setdefault(key_node.value, value)
    return found


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


_WRITTEN: tuple[Any, ...] = (type(None), bool, int, float, list, tuple, dict, None)
"""Types that are written without a tag; None stands for all others, which are refused."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes what the loader above would not read as the same text, and nothing else.

    PyYAML's own dumper follows YAML 1.1: it takes 3e-4 and 08 for words and does not quote them.
    """

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers
    yaml_representers = {kind: yaml.SafeDumper.yaml_representers[kind] for kind in _WRITTEN}

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    if _NOT_TEXT.search(value):
        raise ConfigError(f"'{printable(value)}': NUL and lone surrogates cannot be saved in a configuration")
    # Line ends and control characters keep their identity only as escapes: a bare U+0085 would be read as "\n".
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')


_Dumper.add_representer(str, _text)


def write_yaml(value: Any) -> str:
    """`value` as a document that `read_yaml` reads as an equal one; tuples become lists.

    Raises ConfigError for values that no document can hold: text with NUL or lone surrogates, and objects that are
    neither text, numbers, truth values, None, lists nor mappings.
    """
    try:
        text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NO_FOLDING)
    except yaml.representer.RepresenterError as error:
        unknown = type(error.args[-1]).__name__
        raise ConfigError(f"a value of type {unknown} cannot be saved in a configuration") from None
    return text


class Document(NamedTuple):
    """The content of a YAML text, and the place of each key."""

    value: Any
    lines: dict[str, int]
    """The line, from 1, of each key and each item of a list, by its full key with dots."""
    repeated: list[tuple[str, str]]
    """Repeated keys: the full key, and the problem in words. The first value is kept."""


def read_yaml(text: str, *, origin: str) -> Document:
    """Parse one document; a syntax error or tag is a ConfigError naming `origin` and the line."""
    try:
        loader = _Loader(text)  # a SafeLoader
        node = loader.get_single_node()
        value = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{origin}: {where}{printable(str(error.problem or error.context))}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not readable as YAML: {str(error).splitlines()[0]}") from None
    document = Document(value, {}, [])
    if node is not None:
        _visit(node, document, above="")
    return document


def _visit(node: yaml.Node, document: Document, *, above: str) -> None:
    """Record the lines of everything below `node`, whose key is in `above` (with a final dot), and repeated keys."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            document.lines[f"{above}{index}"] = item.start_mark.line + 1
            _visit(item, document, above=f"{above}{index}.")
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = f"{above}{key_node.value}", key_node.start_mark.line + 1
            if key in seen:
                where = "both in line " + str(line) if line == seen[key] else f"in lines {seen[key]} and {line}"
                document.repeated.append((key, f"is given twice, {where}; keep one of them"))
                continue
            seen[key] = document.lines[key] = line
            _visit(value_node, document, above=f"{key}.")
