"""nmt-report: one page of files and runs, and what it says where something is wrong."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.report.command import main
from tests.tiny_run import make_run

SOURCE = ["a b c", "long@@ er a", "d", "", "a b c d"]
REFERENCE = ["x y z", "x u", "v", "", "x y z w"]


def write(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    make_run(folder / "run")
    (folder / "run/log.jsonl").write_text(
        "".join(
            json.dumps({"event": "train", "step": step, "epoch": 0.1, "loss": 5.0 - step / 10, "seconds": step}) + "\n"
            for step in (10, 20)
        )
    )
    return {
        "run": str(folder / "run"),
        "source": write(folder / "test.en", SOURCE),
        "ref": write(folder / "test.de", REFERENCE),
        "hyp": write(folder / "hyp.de", ["x y z", "x", "v v v v v v", "", "x y"]),
        "other": write(folder / "other.de", ["x y", "x u", "v", "", "x y z w"]),
        "train": write(folder / "train.de", ["x y z z", "x u"]),
    }


def data_of(path: Path) -> dict[str, Any]:
    (text,) = re.findall(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), flags=re.S)
    found: dict[str, Any] = json.loads(text)
    return found


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    (line,) = capsys.readouterr().err.strip().split("\n")
    return code, line


def test_files_and_a_run_in_their_order(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    systems = ["--hyp", files["hyp"], "--model", files["run"], "--hyp", files["other"]]
    texts = ["--source", files["source"], "--ref", files["ref"], "--train", files["train"]]
    assert main(["-o", str(page), *systems, *texts, "--maps", "2", "--metrics", "bleu", "chrf"]) == 0
    said = capsys.readouterr().err
    assert "5 lines in" in said and "inspecting 1 model at 2 sentences" in said and "3 systems" in said
    data = data_of(page)
    assert [system["name"] for system in data["systems"]] == [files["hyp"], files["run"], files["other"]]
    assert data["source"] == SOURCE and data["references"] == [REFERENCE]
    assert data["systems"][0]["lines"] == ["x y z", "x", "v v v v v v", "", "x y"]
    assert data["repeating"][0] == [2]
    assert len(data["maps"]) == 2 and all(list(found) == ["1"] for found in data["maps"].values())
    (place, found), *_ = data["maps"].items()
    assert found["1"]["source"][-1] == "<eos>" and found["1"]["maps"][0]["title"] == "Attention, mean of all"
    html = page.read_text(encoding="utf-8")
    assert "<svg" in html and "Learning curves" in html and "F1 of words" in html
    assert "translated here" in html and 'hyp.de</bdi></span> <span class="soft">baseline' in html


def test_the_page_is_the_same_each_time(files: dict[str, str], tmp_path: Path) -> None:
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        arguments = ["--model", files["run"], "--source", files["source"], "--ref", files["ref"], "--metrics", "bleu"]
        assert main(["-o", str(page), *arguments]) == 0
    contents = [re.sub(r"\d+\.\d s", "", page.read_text(encoding="utf-8")) for page in pages]
    assert contents[0] == contents[1]


def test_files_alone_need_neither_source_nor_model(files: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ["--hyp", files["hyp"], files["other"], "--ref", files["ref"], "--labels", "one", "<two>"]
    assert main(["-o", str(page), *arguments]) == 0
    html = page.read_text(encoding="utf-8")
    assert "By length of the reference" in html and "&lt;two&gt;" in html
    assert "Learning curves" not in html and "F1 of words" not in html and "maps are here" not in html
    assert data_of(page)["maps"] == {} and data_of(page)["source"] is None


def test_an_ensemble_is_a_system(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, both = tmp_path / "report.html", f"{files['run']}+{files['run']}"
    arguments = ["--model", files["run"], both, "--source", files["source"], "--ref", files["ref"], "--maps", "1"]
    assert main(["-o", str(page), *arguments, "--metrics", "chrf"]) == 0
    one, two = data_of(page)["systems"]
    assert two["name"] == both and one["lines"] == two["lines"]
    assert "inspecting 2 models at 1 sentence" in capsys.readouterr().err


def test_training_text_of_a_run_that_is_gone_is_left_out(files: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ["--model", files["run"], "--source", files["source"], "--ref", files["ref"], "--maps", "0"]
    assert main(["-o", str(page), *arguments, "--metrics", "chrf"]) == 0
    assert "F1 of words" not in page.read_text(encoding="utf-8") and data_of(page)["maps"] == {}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no system; give --hyp FILE, translations, or --model"),
        (["--model", "RUN"], 2, "--model needs --source, the text to translate"),
        (["--hyp", "HYP", "HYP"], 2, "HYP: given twice; each one is a system"),
        (["--hyp", "-"], 2, "-: standard input is not allowed here; give files"),
        (["--hyp", "HYP", "--labels", "a", "b"], 2, "--labels: 2 labels for 1 system; give one for each"),
        (["--hyp", "HYP", "OTHER", "--labels", "a", "a"], 2, "--labels: two labels are equal"),
        (["--hyp", "HYP", "--source", "TRAIN"], 1, "HYP has 5 lines but TRAIN has 2; they must be equal"),
        (["--hyp", "HYP", "--train", "nowhere"], 1, "--train nowhere: no such file, and without --model the language"),
        (["--hyp", "nowhere"], 1, "nowhere: no such file"),
        (["--hyp", "HYP", "--metrics", "belu"], 2, "'belu' is not a known metric. Did you mean 'bleu'?"),
        (["--hyp", "HYP", "--tokenize", "13b"], 2, "'13b' is not a known tokenizer of sacreBLEU. Did you mean '13a'?"),
        (["--model", "nowhere", "--source", "SOURCE"], 1, "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    files: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    given = [files.get(word.lower(), word) for word in arguments]
    for name, path in files.items():
        message = message.replace(name.upper(), path)
    page = tmp_path / "report.html"
    found, line = failure(capsys, "-o", str(page), *given, "--ref", files["ref"])
    assert found == code and message in line
    assert not page.exists()


def test_output_that_is_an_input_or_a_part_of_a_model(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hyp = shutil.copy(files["hyp"], tmp_path)
    assert failure(capsys, "-o", hyp, "--hyp", hyp, "--ref", files["ref"])[0] == 2
    inside = f"{files['run']}/config.yaml"
    arguments = ["--model", files["run"], "--source", files["source"], "--ref", files["ref"]]
    code, line = failure(capsys, "-o", inside, *arguments)
    assert code == 1 and "config.yaml" in line


def test_without_jinja_one_line_says_how_to_install_it(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    found = failure(capsys, "-o", str(tmp_path / "r.html"), "--hyp", files["hyp"], "--ref", files["ref"])
    assert found == (1, "nmt-report: jinja2 is not installed; pip install 'nmt-recurrent[report]'")


def test_without_matplotlib_that_is_said_before_anything_is_computed(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    arguments = ["--model", files["run"], "--source", files["source"], "--ref", files["ref"]]
    code, line = failure(capsys, "-o", str(tmp_path / "r.html"), *arguments)
    assert code == 1 and line.endswith("is not installed; pip install 'nmt-recurrent[report]'")


def test_other_forms_of_the_source_are_translated_if_asked_for(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    texts = [
        "--source",
        files["source"],
        "--ref",
        files["ref"],
        "--metrics",
        "bleu",
        "chrf",
        "--maps",
        "0",
        "--robustness",
    ]
    assert main(["-o", str(page), "--hyp", files["hyp"], "--model", files["run"], *texts]) == 0
    section = page.read_text(encoding="utf-8").split('<section id="robustness"')[1].split("</section>\n{% endif %}")[0]
    assert re.findall(r'<th scope="row">([^<]*)</th>', section)[:3] == ["as it is", "capitals", "title case"]
    assert '<b class="chip">B</b>' in section.split("<tbody>")[0] and "chrF2" in section
    capsys.readouterr()
    code, said = failure(capsys, "-o", str(page), "--hyp", files["hyp"], "--ref", files["ref"], "--robustness")
    assert code == 2 and said.endswith("--robustness: needs --model; a file of --hyp has translations of one form")
