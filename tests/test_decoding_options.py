"""Every door has the options that the table gives it, with its ranges, and refuses the others by name."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import ValidationError

import nmt
from nmt.cli import translate
from nmt.config import DecodingConfig
from nmt.evaluating import command as evaluate
from nmt.interop.engine.export import lacking, settings_in_words, settings_of
from nmt.library.values import Options
from nmt.light import Translator, binding, command
from nmt.light.errors import EngineError
from nmt.light.options import (
    DOORS,
    ENGINE_DETAILS,
    ENGINE_SEARCH_OPTIONS,
    ENGINE_SEARCHES,
    MOST,
    OPTIONS,
    Option,
    command_option,
    options_of,
)
from nmt.serving import command as serve
from nmt.serving.app import create_api
from nmt.serving.limits import RefusedError, Settings
from nmt.serving.requests import read_request
from nmt.serving.service import Service
from nmt.synthetic import backtranslate, distill
from tests.compiled import needed_engine
from tests.conftest import REPOSITORY
from tests.exported_run import Exported, make_exported
from tests.light.engine_files import library

KEYS = [name for name, option in OPTIONS.items() if option.is_key]
OF_THE_ENGINE = {"beam_of_one", "sample", "attention", "entropies", *ENGINE_SEARCH_OPTIONS}
"""Which `search`, `search_options` and `details` become."""
NEEDED = {"search_options": {"search": "sample"}}
"""What an option of the engine needs besides itself."""
NUMBERS = [option for option in OPTIONS.values() if option.kind in ("whole", "number")]


def names(*doors: str) -> set[str]:
    return {option.name for option in options_of(*doors)}


def request(option: Option) -> Any:
    """A value that asks for something."""
    of_kind = {
        "whole": option.least + 2,
        "number": option.least + 0.5,
        "flag": not option.default,
        "name": "sample",
        "file": "words.txt",
        "model": "runs/other",
        "language": "none",
        "choice": option.choices[-1] if option.choices else None,
        "pairs": {"temperature": 0.7},
        "weights": [2.0],
        "text": "Das",
        "phrases": ["Haus"],
        "list": ["heads"],
    }
    return of_kind[option.kind]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return make_exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def by_file(exported: Exported) -> Iterator[nmt.Translator]:
    with nmt.load(exported.file) as translator:
        yield translator


def test_the_table_names_doors_and_options_that_there_are() -> None:
    for option in OPTIONS.values():
        assert set(option.doors) <= set(DOORS) and set(option.only) <= set(option.doors) and option.meaning
        assert option.kind != "choice" or option.default in option.choices
        assert not option.needs or option.needs in OPTIONS or option.needs == "several models"


def test_a_configuration_has_the_keys_with_defaults_and_ranges() -> None:
    usual = DecodingConfig()
    assert {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)} == {
        name: OPTIONS[name].default for name in KEYS
    }
    for option in NUMBERS:
        if option.is_key:
            for value in (option.least, option.most, *option.words):
                given = None if value == "none" else value
                assert getattr(dataclasses.replace(usual, **{option.name: given}), option.name) == given
            for value in (option.least - 1, option.most * 1.1 if option.kind == "number" else option.most + 1):
                with pytest.raises(ValidationError, match=option.name):
                    dataclasses.replace(usual, **{option.name: value})


@pytest.mark.parametrize("program", [translate, evaluate, serve, distill, backtranslate])
def test_a_command_has_all_keys_with_their_ranges(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parser = program.build_parser()
    known = {text: action for action in parser._actions for text in action.option_strings}
    wanted = {command_option(name) for name in KEYS if name != "n_best" or program in (translate, distill)}
    assert wanted - known.keys() <= {"--n-best"}
    for option in NUMBERS:
        read = known.get(command_option(option.name))
        if option.is_key and read is not None and option.name != "n_best":
            assert read.type(f"{option.least}") == option.least and read.type(f"{option.most:.0f}") == option.most
            assert [read.type(word) for word in option.words] == list(option.words)
            beyond = [f"{option.least - 1}", *([] if option.most == MOST else [f"{option.most + 1:.0f}"])]
            for text in beyond:
                with pytest.raises(SystemExit):
                    parser.parse_args(["model", "corpus", "-o", "x", command_option(option.name), text][-2:])
                assert command_option(option.name) in capsys.readouterr().err


def test_the_library_has_all_options_of_a_run_but_the_number_format() -> None:
    assert set(get_type_hints(Options)) == names("run") - {"precision"}


def test_a_request_has_the_options_of_the_server_and_refuses_the_others_by_name() -> None:
    settings = Settings()
    for option in OPTIONS.values():
        # A request has the terms themselves in place of a file.
        asked = {"a": "b"} if option.name == "glossary" else request(option)
        body = json.dumps({"text": "a", option.name: asked}).encode()
        if "server" in option.doors:
            found = read_request(body, "application/json", settings, "run")
            assert getattr(found, option.name) == asked
        else:
            with pytest.raises(RefusedError, match=f"^{option.name}: a request cannot set it") as caught:
                read_request(body, "application/json", settings, "run")
            assert (command_option(option.name) in caught.value.message) == option.is_key
            with pytest.raises(RefusedError, match=f"^{option.name}: a request cannot set it") as caught:
                read_request(body, "application/json", settings, "file")
            can = option.is_key and "file" in option.doors
            assert (command_option(option.name) in caught.value.message) == can


@pytest.mark.parametrize("door", ["run", "file"])
def test_the_page_of_a_server_lists_what_its_models_can_do(door: str) -> None:
    page = create_api(Service(Settings(max_beam_size=9), name="m", doors=(door,))).openapi()
    body = page["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"text", "max_seconds"} | names("server", door)
    forms = {name: shape["anyOf"][0] for name, shape in body["properties"].items() if "anyOf" in shape}
    assert forms["beam_size"]["maximum"] == forms["n_best"]["maximum"] == 9
    assert (forms["length_penalty"]["minimum"], forms["length_penalty"]["maximum"]) == (0, 10)
    assert forms["search"].get("enum") == (None if door == "run" else [*ENGINE_SEARCHES])
    assert body["properties"]["search"]["x-allowed"].startswith("a string" if door == "run" else "auto, beam, greedy")
    assert forms["details"].get("enum") == (None if door == "run" else [*ENGINE_DETAILS, "confidence"])


def test_a_file_has_its_options_and_refuses_the_others_by_name(by_file: nmt.Translator, tmp_path: Path) -> None:
    terms = tmp_path / "words.txt"
    terms.write_text("a\tb\n")
    for option in OPTIONS.values():
        value: Any = option.only["file"][0] if "file" in option.only else request(option)
        value = terms if value == terms.name else False if option.name == "replace_unknown" else value
        if "file" in option.doors:
            by_file.translate([], **{**NEEDED.get(option.name, {}), option.name: value})
        else:
            with pytest.raises(
                nmt.ConfigError, match=rf"^{option.name}: .*(does not have|number format|not an option)"
            ):
                by_file.translate("A dog.", **{option.name: value})
            for nothing in option.asks_nothing if option.is_key and option.name != "precision" else ():
                by_file.translate([], **{option.name: nothing})
    for name, value in (("search", "mbr"), ("details", ["heads"]), ("shortlist", "words.txt")):
        with pytest.raises(nmt.ConfigError, match=f"^{name}: "):
            by_file.translate([], **{name: value})  # type: ignore[call-overload]


def test_nmt_light_has_its_options_and_refuses_the_others_by_name(
    exported: Exported, by_file: nmt.Translator, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = command.build_parser()
    shown = parser.format_help()
    for option in OPTIONS.values():
        if option.is_key:
            is_there = "light" in option.doors and option.name != "shortlist"
            assert any(f"{command_option(option.name)}{end}" in shown for end in " ,") == is_there
            if not is_there:
                assert command.main([str(exported.file), command_option(option.name), "1"]) == 2
                error = capsys.readouterr().err
                assert error.startswith(f"nmt-light: {command_option(option.name)}: nmt-light does not have it")
                assert error.count("\n") == 1
    with Translator(exported.file, library=needed_engine()) as own:
        for option in OPTIONS.values():
            value = option.only["light"][0] if "light" in option.only else request(option)
            value = False if option.name == "replace_unknown" else value  # the model has no unknown words
            value = {"a": "b"} if option.name == "glossary" else value
            if "light" in option.doors:
                own.translate([], **{**NEEDED.get(option.name, {}), option.name: value})
            else:
                with pytest.raises(EngineError, match=f"^{option.name}: the engine does not have it"):
                    own.translate([], **{option.name: value})
        with pytest.raises(EngineError, match="^beam: is not an option. Allowed: search, "):
            own.translate([], beam=3)


def test_the_options_in_c_are_those_of_the_table_with_its_ranges(exported: Exported) -> None:
    """Also in the browser, whose engine.js takes all of them but those that it names."""
    engine = library()
    model = engine.open([exported.file])
    usual = model.defaults()
    wanted = {option.name for option in options_of("light") if option.is_number or option.kind in ("file", "language")}
    wanted -= {"glossary", "domain"}  # one has a function of its own, the other is a part of the language's token
    assert set(engine.names) == wanted | OF_THE_ENGINE
    for option in options_of("light"):
        if option.kind not in ("whole", "number", "flag"):
            continue
        most = 1 if option.kind == "flag" else option.engine_most
        least = 0 if option.can_be_off else option.least
        wide = {"n_best": {"beam_size": 1000}, "min_length": {"max_length_offset": 10**6}}.get(option.name, {})
        for value in (least, most)[: 1 if option.name == "replace_unknown" else 2]:  # it has no unknown words
            model.translate([], usual._replace(**{**wide, option.name: value}))
        for value in (least - 1, most + 1, *([] if option.kind == "number" else [0.5])):
            with pytest.raises(EngineError, match=f"^{option.name} must be "):
                model.translate([], usual._replace(**{option.name: value}))
    script = (REPOSITORY / "nmt/light/web/engine.js").read_text(encoding="utf-8")
    (without,) = re.findall(r"const WITHOUT = (\[.*?\]);", script)
    wishes = [option.name for option in options_of("browser") if option.kind in ("text", "phrases")]
    searched = {*wishes, "search", "search_options", "glossary", "domain"}
    assert set(engine.names) - set(json.loads(without)) - OF_THE_ENGINE == names("browser") - searched
    assert set(re.findall(r"(\w+): \{", *re.findall(r"const SEARCHES = \{(.*)\};", script))) == {*ENGINE_SEARCHES}
    (asked,) = re.findall(r"const ASKED = (\[.*?\]);", script)
    assert json.loads(asked) == [*binding.TEXTS] and set(binding.TEXTS) == {"text", *wishes}


def test_options_by_name_are_the_fields_of_the_header() -> None:
    """Sizes and offsets of the compiled `nmt_options`, compared with those of the fields that the header lists."""
    header = (REPOSITORY / "nmt/light/src/nmt_engine.h").read_text(encoding="utf-8")
    (body,) = re.findall(r"typedef struct \{([^}]*)\} nmt_options;", header)
    fields = re.findall(r"^\s*(int32_t|float) (\w+);", body, re.MULTILINE)
    types = {"int32_t": ctypes.c_int32, "float": ctypes.c_float}

    class Fields(ctypes.Structure):
        _fields_ = [
            *((name, types[kind]) for kind, name in fields),
            *((name, ctypes.c_void_p) for name in ("glossary", "stop")),
        ]

    engine = library()
    assert engine.names == [name for _, name in fields]
    assert engine.code.nmt_options_size() == ctypes.sizeof(Fields)
    given, problem = Fields(), ctypes.create_string_buffer(200)
    for place, name in enumerate(engine.names):
        assert engine.code.nmt_set_option(ctypes.byref(given), name.encode(), 1.0, problem, 200), problem.value
        assert [getattr(given, other) for other in engine.names] == [int(i <= place) for i in range(len(engine.names))]
        assert engine.code.nmt_option(ctypes.byref(given), name.encode()) == 1
    assert not engine.code.nmt_set_option(ctypes.byref(given), b"beam", 1.0, problem, 200)
    assert problem.value.startswith(b"beam: is not an option of the engine. Allowed: beam_size, ")


def test_an_export_stores_or_refuses_what_a_configuration_asks_for() -> None:
    for option in OPTIONS.values():
        if not option.is_key or option.needs or option.only_rounding or option.name in ("search", "search_options"):
            continue
        if option.kind == "language":  # of which a file has the token: tests/marian/test_languages.py
            continue
        value = "words.txt" if option.kind in ("file", "model") else request(option)
        decoding = dataclasses.replace(DecodingConfig(), **{option.name: value})
        if "light" not in option.doors or option.name == "glossary":
            with pytest.raises(nmt.ConfigError, match=rf"^decoding\.{option.name}: .* the engine does not have"):
                settings_of(decoding)
        elif option.kind != "file" and option.name != "n_best":
            stored = settings_in_words(settings_of(decoding))
            assert stored.get(option.name, stored["longest_source"]) == value
        told = [one.name for one in lacking(decoding, door="onnx")]
        assert told == ([] if "onnx" in option.doors or option.name == "n_best" else [option.name])


@pytest.mark.parametrize(("beam", "offset", "is_allowed"), [(1000, 100, True), (1000, 101, False), (99, 1000, True)])
def test_a_file_asks_for_no_search_without_end(beam: int, offset: int, is_allowed: bool) -> None:
    decoding = DecodingConfig(beam_size=beam, max_length_offset=offset)
    if is_allowed:
        settings_of(decoding)
    else:
        with pytest.raises(nmt.ConfigError, match=r"^decoding\.max_length_offset: 101 is too large .* at most 100;"):
            settings_of(decoding)
