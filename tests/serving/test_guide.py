"""docs/serving.md is true: its commands are parsed, its requests answered so, its lists complete."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

import httpx
import pytest
import yaml

from nmt.serving.app import create_api
from nmt.serving.limits import Settings
from nmt.serving.service import Service
from tests.conftest import REPOSITORY
from tests.console import parser_of
from tests.exported_run import Exported
from tests.serving.server_process import started

GUIDE = (REPOSITORY / "docs/serving.md").read_text(encoding="utf-8")
PLAIN = re.findall(r"^```\n(.*?)^```$", GUIDE, flags=re.M | re.S)
ANSWERS = re.findall(r"^```\n(curl .*?)^```$\n\n```json\n(.*?)^```$", GUIDE, flags=re.M | re.S)


OPTIONS = dict(re.findall(r"^- ((?:`--[^`]+`(?:, )?)+): (.*)$", GUIDE, flags=re.M))
"""The options of its list, with their meaning."""


@pytest.mark.parametrize("line", [line for block in PLAIN for line in block.splitlines() if "nmt-serve " in line])
def test_commands_are_parsed(line: str) -> None:
    if line.startswith(("nmt-serve:", "docker build")):
        return
    words = shlex.split(line.replace("$PWD", "."))
    if words[0] == "docker":  # what comes after the name of the image goes to nmt-serve, as ENTRYPOINT has it
        arguments = words[words.index("nmt-serve") + 1 :] or ["/model"]
    else:
        arguments = words[words.index("nmt-serve") + 1 :]
    assert parser_of("nmt-serve").parse_args(arguments).models


def shape(value: Any) -> Any:
    """What of an answer does not depend on the model: the keys, and how long lists of answers are."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key != "notes"}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [shape(item) for item in value]
    return type(value).__name__


@pytest.mark.parametrize(("command", "answer"), ANSWERS)
def test_answers_are_as_shown(command: str, answer: str, exported: Exported) -> None:
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:3] == ["curl", "http://127.0.0.1:8080/translate", "-H"]
    assert (words[3], words[4]) == ("Content-Type: application/json", "-d")
    with started(exported.file) as server:
        found = httpx.post(f"{server.base}/translate", content=words[5].encode(), headers={"Content-Type": JSON}).json()
    wanted = json.loads(answer)
    if "error" in wanted:
        assert found == wanted
    assert shape(found) == shape(wanted)


JSON = "application/json"


def test_there_are_answers_to_check() -> None:
    assert len(ANSWERS) >= 4


def test_its_lists_are_whole() -> None:
    app = create_api(Service(Settings(api_key="a"), name="model"))
    found = {
        status
        for path in app.openapi()["paths"].values()
        for method in path.values()
        for status, answer in method["responses"].items()
        if "content" in answer and status != "200"
    }
    listed = set(re.findall(r"\b[45]\d\d\b", GUIDE[GUIDE.index("400 stands for") :].split("\n\n")[0]))
    assert {"400", "413", "503", "504"} <= listed <= found | {"414", "431"}
    options = {option for action in parser_of("nmt-serve")._actions for option in action.option_strings}
    listed_options = set(re.findall(r"`(--[a-z-]+)", " ".join(OPTIONS)))
    assert listed_options <= options and len(listed_options) > 10
    text = Service(Settings(), name="model").metrics.text().decode()
    counted = set(re.findall(r"^# TYPE (nmt_\w+) ", text, flags=re.M))
    assert set(re.findall(r"`(nmt_\w+)`", GUIDE)) == counted
    assert re.findall(r"`(process_\w+)`", GUIDE) and {*re.findall(r"`(process_\w+)`", GUIDE)} <= {
        *re.findall(r"^(process_\w+) ", text, flags=re.M)
    }


def test_defaults_are_those_of_the_command() -> None:
    for named, meaning in OPTIONS.items():
        options = re.findall(r"`--([a-z-]+)", named)
        values = re.findall(r"\(([\d,]+)\)", meaning)
        for option, value in zip(options, values, strict=bool(values)):
            default = parser_of("nmt-serve").get_default(option.replace("-", "_"))
            assert default == ast.literal_eval(value.replace(",", "")), option
    limits = Settings()
    parser = parser_of("nmt-serve")
    assert limits.max_wait == parser.get_default("max_wait_ms") / 1000
    for name in ("batch_size", "max_queue", "timeout", "max_characters", "max_body_bytes", "max_beam_size"):
        assert getattr(limits, name) == parser.get_default(name)


def test_the_configuration_of_prometheus_is_yaml() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, flags=re.M | re.S)
    assert yaml.safe_load(block)["scrape_configs"][0]["static_configs"][0]["targets"] == ["127.0.0.1:8080"]


def test_its_links_lead_somewhere() -> None:
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", GUIDE))
    assert [link for link in links if not (REPOSITORY / "docs" / link).exists()] == []
