"""One model of several languages and domains: its texts, the tokens before sources, and each way to translate."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

import nmt
from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.errors import ConfigError, DataError
from nmt.interop.run_layout import read_events
from nmt.light import Translator, command
from nmt.light.options import language_token
from nmt.serving.libretranslate import Languages
from nmt.serving.limits import Settings
from nmt.serving.requests import read_request
from nmt.texts import as_list
from tests.compiled import needed_engine
from tests.conftest import REPOSITORY
from tests.console import call
from tests.tiny_training import WORDS, nmt_train

ENDINGS = {"en": "", "de": "d", "cs": "c"}
"""How a language writes the same words; `m` is behind them in its medical text."""
TEXTS = [
    {"prefix": "train", "languages": ["en", "de"], "directions": "both"},
    {"source": "train.en", "target": "train.cs", "languages": ["en", "cs"], "tag": "news"},
    {"source": "train.en", "target": "medical.cs", "languages": ["en", "cs"], "tag": "medical"},
]
DEV = [text | {key: str(text[key]).replace("train", "dev").replace("medical", "dev_medical")
               for key in ("prefix", "source", "target") if key in text} for text in TEXTS]  # fmt: skip
TAGS = [">>de<<", ">>en<<", ">>cs+news<<", ">>cs+medical<<"]
"""Of the files, one direction after the other."""


class Trained(NamedTuple):
    folder: Path
    config: Path
    run: Path
    file: Path


def write_text(folder: Path) -> None:
    draw = random.Random(3)
    for name, count in (("train", 400), ("dev", 6)):
        lines = [[draw.choice(WORDS[:8]) for _ in range(draw.randint(1, 3))] for _ in range(count)]
        for language, ending in ENDINGS.items():
            text = "".join(" ".join(word + ending for word in line) + "\n" for line in lines)
            (folder / f"{name}.{language}").write_text(text)
        medical = "".join(" ".join(f"{word}cm" for word in line) + "\n" for line in lines)
        (folder / {"train": "medical.cs", "dev": "dev_medical.cs"}[name]).write_text(medical)


def write_config(folder: Path, **changes: Any) -> Path:
    data = {
        "source_language": "mul", "target_language": "mul", "target_tag": True, "train": TEXTS, "dev": DEV, "test": DEV,
        "tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 320}, "workers": 1,
    }  # fmt: skip
    sections: dict[str, Any] = {
        "run_dir": "run",
        "model": {"cell": "lrn", "hidden_size": 32, "embedding_size": 32, "dropout": 0.0, "init_range": 0.16},
        "data": data,
        "training": {"max_steps": 300, "batch_sentences": 40, "lr": 0.02, "schedule": "constant", "precision": "fp32",
                     "validate_every": 150},
        "decoding": {"beam_size": 2, "max_length_offset": 3},
    }  # fmt: skip
    for key, value in changes.items():
        section, name = key.split("__")
        sections[section][name] = value
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    needed_engine()
    folder = tmp_path_factory.mktemp("many")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_text(folder)
        config = write_config(folder)
        assert nmt_train(config) == 0
        file = folder / "many.nmt"
        assert call("nmt-export", "run", "--precision", "fp32", "-o", str(file)) == 0
        yield Trained(folder, config, folder / "run", file)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    return tmp_path


def written_in(line: str) -> set[str]:
    """The endings of a line's words."""
    return {word[2:] for word in line.split()}


def test_each_direction_has_the_token_of_its_target_before_its_sources(text: Path) -> None:
    config = load_config(write_config(text))
    assert as_list(config.data.train) == [
        "train@en>de", "train@en<de", "train.en:train.cs@en>cs+news", "train.en:medical.cs@en>cs+medical",
    ]  # fmt: skip
    data = prepare(config, text / "run", progress=False)
    assert [f">>{code}<<" for code in sorted(data.tokenizer.languages())] == sorted(TAGS)
    ends = [sum(part.pairs for part in data.train.parts[:place]) for place in range(5)]
    for place, tag in enumerate(TAGS):
        rows = range(ends[place], ends[place + 1])
        assert {data.tokenizer.source_tokens([data.train.source(row)[0]])[0] for row in rows} == {tag}
    text, _, dev = data.dev[""]
    assert dev is not None
    for row, line in enumerate(text.source):
        assert line.startswith(f"{TAGS[row // 6]} ")
        assert data.tokenizer.source_tokens([dev.source(row)[0]]) == [TAGS[row // 6]]
    first, backwards = text.source[0], text.source[6]
    assert written_in(first.split(" ", 1)[1]) == {""} and written_in(backwards.split(" ", 1)[1]) == {"d"}
    assert written_in(text.target[0]) == {"d"} and written_in(text.target[6]) == {""}


def test_names_say_the_same_as_mappings(text: Path) -> None:
    named = ["train@en<>de", "train.en:train.cs@en>cs+news", "train.en:medical.cs@en>cs+medical"]
    mapped, plain = (
        prepare(load_config(write_config(text, data__train=train)), text / place, progress=False)
        for place, train in (("one", TEXTS), ("other", named))
    )
    assert mapped.key == plain.key and mapped.tokenizer.fingerprint() == plain.tokenizer.fingerprint()


def test_back_translated_text_has_both_tokens(text: Path) -> None:
    options = {"vocab_size": 320, "symbols": ["<BT>"]}
    made = {"data__monolingual": [{"prefix": "dev", "languages": ["en", "de"]}], "data__tokenizer_options": options}
    data = prepare(load_config(write_config(text, **made)), text / "run", progress=False)
    assert data.tokenizer.source_tokens(data.train.source(len(data.train) - 1)[:2]) == [">>de<<", "<BT>"]


def test_augmented_text_keeps_its_tokens(text: Path) -> None:
    config = load_config(write_config(text, data__augmentation=[{"upper": 1.0}]))
    data = prepare(config, text / "run", progress=False)
    rows = np.array([0, 401, 801, 1201])
    source, _ = data.sides.changed(data.train, 0, rows, seed=1)
    for place, tag in enumerate(TAGS):
        names = data.tokenizer.source_tokens(source.row(place))
        assert names[0] == tag and any(name.startswith("<0x") or name.strip("▁").isupper() for name in names[1:-1])


@pytest.mark.parametrize(
    ("changes", "key", "problem"),
    [
        ({"data__train": {"prefix": "train", "languages": ["en"]}}, "data.train", "languages: .* list of two codes"),
        ({"data__train": {"prefix": "train", "languages": ["en", "en"]}}, "data.train", "languages: .* two codes"),
        ({"data__train": {"prefix": "train", "languages": "en"}}, "data.train", "languages: 'en' is not a list"),
        ({"data__train": [{"prefix": "train", "directions": "both"}]}, "data.train", "both needs languages"),
        ({"data__train": [{**TEXTS[0], "directions": "all"}]}, "data.train", "'all' is not .* Allowed: one, both"),
        ({"data__train": [{**TEXTS[0], "tag": "a b"}]}, "data.train", "tag: 'a b' is not allowed"),
        ({"data__train": [{"prefix": "a:b"}]}, "data.train", "'a:b' is not allowed; names here"),
        ({"data__train": [*TEXTS, "train"]}, "data.train.3", "needs languages: .*, as data.source_language is mul"),
        ({"data__target_language": "de"}, "data.train.0", "its target is 'en', but data.target_language is 'de'"),
        ({"data__source_language": "en"}, "data.train.0", "its source is 'de', but data.source_language is 'en'"),
        ({"data__target_tag": False}, "data.target_tag", "must be true where data.target_language is mul"),
        ({"data__target_tag": False}, "data.train.1", "the tag 'news' has no effect without data.target_tag"),
        ({"data__tokenizer": "whitespace", "data__tokenizer_options": {}}, "data.target_tag", "'whitespace' has no"),
        ({"training__wait": 3}, "training.wait", "is not possible with data.target_tag"),
        ({"training__guided_alignment": "x"}, "training.guided_alignment", "not possible with data.target_tag"),
    ],
)
def test_what_does_not_fit_is_told_by_its_key(text: Path, changes: dict[str, Any], key: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?m){key}: .*{problem}"):
        load_config(write_config(text, **changes))


def test_files_and_tokens_that_are_missing_are_named(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swedish = {"prefix": "dev", "languages": ["en", "sv"], "directions": "both"}
    assert nmt_train(write_config(text, data__train=[*TEXTS, swedish])) == 1
    assert "data.train.3: neither dev.sv nor dev.sv.gz exists" in capsys.readouterr().err
    for key in ("dev", "test"):
        shutil.copy("dev.de", "dev.sv")
        config = load_config(write_config(text, **{f"data__{key}": [swedish]}))
        with pytest.raises(DataError, match=rf"^data.{key}: '>>sv<<' is not one token of the source vocabulary"):
            prepare(config, text / "run", progress=False)


def test_it_translates_into_the_language_and_domain_that_are_asked_for(trained: Trained) -> None:
    """In each door; a run and a file in fp32 say the same."""
    lines = (trained.folder / "dev.en").read_text().splitlines()
    asked = [({"target_language": "de"}, {"d"})]
    asked += [({"target_language": "cs", "domain": name}, {end}) for name, end in (("news", "c"), ("medical", "cm"))]
    asked += [({"target_language": "cs+medical"}, {"cm"}), ({"target_language": "de", "domain": "none"}, {"d"})]
    with (
        nmt.load(trained.run) as run,
        nmt.load(trained.file) as file,
        Translator(trained.file, library=needed_engine()) as light,
    ):
        assert set(run.languages) == set(file.languages) == {"de", "en", "cs+news", "cs+medical"}
        for options, endings in asked:
            found = run.translate(lines, **options)
            assert {end for one in found for end in written_in(str(one))} == endings
            assert [str(one) for one in file.translate(lines, **options)] == [str(one) for one in found]
            assert [one.text for one in light.translate(lines, **options)] == [str(one) for one in found]
            body = json.dumps({"text": lines, **options}).encode()
            wanted = read_request(body, "application/json", Settings(), "run")
            again = run.translate(wanted.sentences(), **wanted.options())
            assert [str(one) for one in again] == [str(one) for one in found]
        named = run.translate([f">>cs+medical<< {line}" for line in lines], domain="news", target_language="cs")
        assert {end for one in named for end in written_in(str(one))} == {"cm"}


def test_commands_translate_and_score(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.light.translator.shared_library", needed_engine)
    options = ("--target-language", "cs", "--domain", "medical")
    made = []
    for name, call_it in (
        ("run", lambda *more: call("nmt-translate", str(trained.run), *more)),
        ("file", lambda *more: call("nmt-translate", str(trained.file), *more)),
        ("light", lambda *more: command.main([str(trained.file), *more])),
    ):
        output = tmp_path / name
        assert call_it(*options, "-i", str(trained.folder / "dev.en"), "-o", str(output)) == 0
        made.append(output.read_text())
    assert made[0] == made[1] == made[2] and written_in(made[0]) == {"cm"}
    files = "--source", str(trained.folder / "dev.en"), "--ref", str(trained.folder / "dev_medical.cs")
    scores = []
    for more in (options, ("--target-language", "de")):
        capsys.readouterr()
        assert call("nmt-eval", str(trained.run), *files, "--metrics", "chrf", "--json", *more) == 0
        scores.append(json.loads(capsys.readouterr().out)[0]["score"])
    assert scores[0] > scores[1]
    assert call("nmt-check", str(trained.run)) == 0 and call("nmt-check", str(trained.file)) == 0


def test_pairs_are_scored_and_looked_into_with_their_language(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in training; a source without a language is refused."""
    with nmt.load(trained.run) as model:
        best = model.translate("ba da", target_language="de", details=["tokens"])
        right, wrong = model.score([">>de<< ba da", ">>cs+medical<<ba da"], [str(best)] * 2)
        assert right.score > wrong.score
        assert right.source_tokens == len(best.source_pieces) - 1
        looked = model.inspect(">>de<< ba da", str(best))
        assert looked.source_tokens == best.source_pieces
        for line in ("ba da", ">>fr<< ba da"):
            with pytest.raises(
                DataError, match=rf"'{line}' must begin with its target language: .*Allowed: de, en, cs"
            ):
                model.score([line], ["bad"])
    (tmp_path / "source").write_text("ba da\n")
    files = ("--source", str(tmp_path / "source"), "--target", str(tmp_path / "source"))
    assert call("nmt-score", str(trained.run), *files) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_an_export_says_how_to_translate_with_it(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("nmt-export", str(trained.run), "-o", str(tmp_path / "folder")) == 0
    card = (tmp_path / "folder" / "README.md").read_text()
    assert " --target-language de < " in card and 'translate("...", target_language="de")' in card
    assert "(de, en, cs+news, cs+medical)" in card
    capsys.readouterr()
    assert call("nmt-check", str(trained.file)) == 0
    assert "several languages to several languages" in capsys.readouterr().out


def test_a_teacher_needs_the_text_of_one_direction(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("nmt-distill", str(trained.run), "-o", str(tmp_path / "made"), "--target-language", "en")
    assert call(*given) == 2
    assert "name the text of one with --train, such as corpus@en>de" in capsys.readouterr().err
    assert call(*given, "--train", f"{trained.folder / 'dev'}@de>en") == 0
    assert written_in((tmp_path / "made.mul").read_text()) == {"d"}
    assert written_in((tmp_path / "made.en").read_text()) == {""}


def test_validation_and_test_translate_each_line_into_its_language(trained: Trained) -> None:
    lines = (trained.run / "test.mul").read_text().splitlines()
    for place, ending in enumerate(("d", "", "c", "cm")):
        assert {end for line in lines[6 * place : 6 * place + 6] for end in written_in(line)} == {ending}
    events = [event for event in read_events(trained.run) if event["event"] == "validation"]
    assert {sample["source"].split()[0] for sample in events[-1]["samples"]} <= {*TAGS}


def test_sets_with_names_have_languages_of_their_own(text: Path) -> None:
    """Chinese is scored by its characters, as the language of a set says."""
    for name in ("train", "dev"):
        shutil.copy(f"{name}.cs", f"{name}.zh")
    chinese = {"prefix": "dev", "languages": ["en", "zh"]}
    sets = {"german": DEV[0], "chinese": chinese}
    changes = {"data__train": [TEXTS[0], {**chinese, "prefix": "train"}], "data__dev": sets, "data__test": sets}
    few = {
        "data__tokenizer_options": {"vocab_size": 300},
        "training__max_steps": 1,
        "training__validate_every": 1,
        "training__early_stopping_metric": "bleu@chinese",
    }
    assert nmt_train(write_config(text, **changes, **few)) == 0
    events = {event["event"]: event for event in read_events(text / "run")}
    for kind in ("validation", "test"):
        signatures = events[kind]["signatures"]
        assert "tok:zh" in signatures["bleu@chinese"] and "tok:13a" in signatures["bleu@german"]
    assert {"loss@german", "loss@chinese"} < events["validation"].keys()
    assert len((text / "run" / "test.german.mul").read_text().splitlines()) == 12
    assert call("nmt-compare", str(text / "run"), str(text / "run")) in (0, 2)


def test_a_run_resumes_and_a_moved_one_finds_its_text(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(trained.config, "--set", "training.max_steps=301") == 0
    assert (trained.run / "checkpoints" / "step-301").is_dir()
    saved = yaml.safe_load((trained.run / "config.yaml").read_text())["data"]
    assert saved["train"][0] == f"{trained.folder / 'train'}@en<>de"
    assert saved["tokenizer_options"]["symbols"] == TAGS


@pytest.mark.parametrize("kind", ["run", "file", "light"])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"target_language": "fr"}, r"target_language: 'fr' is no language of this model\. Allowed: "),
        ({"target_language": "cs"}, r"domain: is needed by this model with target_language 'cs'\. Allowed: news, med"),
        ({"target_language": "cs", "domain": "law"}, r"domain: 'law' is no domain .* 'cs'\. Allowed: news, medical\."),
        ({"target_language": "de", "domain": "news"}, r"domain: 'news' is no domain .* 'de'\. Allowed: none\."),
        ({"target_language": "cs+news", "domain": "medical"}, r"domain: 'medical' .* 'cs\+news'\. Allowed: news\."),
    ],
)
def test_what_is_missing_or_unknown_is_refused_by_name(
    trained: Trained, kind: str, options: dict[str, str], problem: str
) -> None:
    model: Any = Translator(trained.file, library=needed_engine()) if kind == "light" else None
    model = model or nmt.load(trained.run if kind == "run" else trained.file)
    with model:
        with pytest.raises(Exception, match=rf"^(decoding\.)?{problem}"):
            model.translate("ba", **options)
        with pytest.raises(Exception, match=r"target.language.*de"):
            model.translate("ba")


def test_a_domain_of_a_model_without_any_is_refused(tmp_path: Path) -> None:
    with nmt.load("en-de") as model:
        with pytest.raises(ConfigError, match=r"^domain: 'x' is no domain of this model\. Allowed: none, as it has"):
            model.translate("A dog.", domain="x")
        model.translate("A dog.", domain="none")


def test_a_usual_language_and_domain_are_exported(trained: Trained, tmp_path: Path) -> None:
    """Of both a call may set one."""
    usual, file = tmp_path / "usual", tmp_path / "usual.nmt"
    shutil.copytree(trained.run, usual)
    for config in (usual / "config.yaml", *usual.glob("checkpoints/*/config.yaml")):
        saved = yaml.safe_load(config.read_text())
        saved["decoding"] |= {"target_language": "cs", "domain": "news"}
        config.write_text(yaml.safe_dump(saved))
    assert call("nmt-export", str(usual), "--precision", "fp32", "-o", str(file)) == 0
    for place in (usual, file):
        with nmt.load(place) as model:
            assert written_in(str(model.translate("ba da"))) == {"c"}
            assert written_in(str(model.translate("ba da", domain="medical"))) == {"cm"}
            assert written_in(str(model.translate("ba da", target_language="de", domain="none"))) == {"d"}
            assert written_in(str(model.translate(">>de<< ba da", target_language="none"))) == {"d"}
            with pytest.raises(ConfigError, match="domain: 'news' is no domain"):
                model.translate("ba da", target_language="de")


CODES = {"de": 5, "cs+news": 6, "cs+medical": 7}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_browser_takes_the_same_token_as_python(tmp_path: Path) -> None:
    cases = [
        (language, domain)
        for language in ("de", "cs", "cs+news", "fr", None)
        for domain in ("news", "medical", "law", None)
    ]
    script = f"""
const NMT = require({json.dumps(str(REPOSITORY / "nmt/light/web/engine.js"))});
const self = {{ languages: new Map(Object.entries({json.dumps(CODES)})), defaults: {{ target_language: 0 }} }};
const token = (language, domain) => {{
  try {{ return NMT.Engine.prototype.languageToken.call(self, language ?? undefined, domain ?? undefined); }}
  catch (error) {{ return error.message.split(":")[0]; }}
}};
console.log(JSON.stringify({json.dumps(cases)}.map((pair) => token(...pair))));"""
    (tmp_path / "tokens.js").write_text(script)
    done = subprocess.run(["node", tmp_path / "tokens.js"], capture_output=True, text=True, check=True)
    for (language, domain), found in zip(cases, json.loads(done.stdout), strict=True):
        expected = 0 if language is None else language_token(CODES, language, domain)
        assert found == (expected if isinstance(expected, int) else expected[0]), (language, domain)


def test_clients_of_libretranslate_name_either_side() -> None:
    facts = {"source_language": "mul", "target_language": "mul"}
    listed = Languages.of(facts, ("de", "en")).listed()
    assert [(one["code"], one["targets"]) for one in listed] == [("de", ["en"]), ("en", ["de"])]
    listed = Languages.of({"source_language": "en", "target_language": "de"}, ()).listed()
    assert [(one["code"], one["targets"]) for one in listed] == [("de", []), ("en", ["de"])]


@pytest.mark.browser
def test_the_page_offers_each_language_with_its_domains(trained: Trained) -> None:
    from tests.browser import chromium
    from tests.serving.server_process import started
    from tests.serving.test_page import expect, page_of

    with nmt.load(trained.file) as model:
        wanted = [str(model.translate("ba da", target_language=code)) for code in ("cs+medical", "de")]
    with started(trained.file) as server, chromium() as opened, page_of(opened, server.base) as (page, seen):
        expect(page.locator("#status")).to_have_text("Ready")
        offered = page.locator("#language option").all_text_contents()
        assert offered == ["German", "English", "Czech, news", "Czech, medical"]
        page.locator("#language").select_option("cs+medical")
        page.locator("#text").fill("ba da")
        expect(page.locator(".target")).to_have_text([wanted[0]], use_inner_text=True)
        page.locator("#language").select_option("de")
        expect(page.locator(".target")).to_have_text([wanted[1]], use_inner_text=True)
        assert seen.problems == []
