"""YAML as users expect it: 5e-4 is a number, `no` is a word, and no key may stand twice."""

from __future__ import annotations

import re
from typing import Any

import yaml

from nmt.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 and without silently overwritten keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}


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


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key_node.start_mark)
        if key_node.value in seen:
            problem = f"key '{key_node.value}' stands twice, in lines {seen[key_node.value]} and {line}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        seen[key_node.value] = line
    return {loader.construct_object(k, deep=True): loader.construct_object(v, deep=True) for k, v in node.value}


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse_yaml(text: str, *, origin: str) -> Any:
    """Parse one document; a syntax error, tag or repeated key is a ConfigError naming `origin` and the line."""
    try:
        return yaml.load(text, Loader=_Loader)  # _Loader is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{origin}: {where}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not readable as YAML: {str(error).splitlines()[0]}") from None
