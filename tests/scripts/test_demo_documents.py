"""Documents whose pronouns need the sentence before, and the count of the right ones."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from scripts.count_pronouns import GENDERS, pronouns
from scripts.demo_grammar.documents import generate_documents, has_pronoun

ROOT = Path(__file__).resolve().parents[2]


def test_the_sentence_with_the_pronoun_does_not_tell_its_gender() -> None:
    documents = generate_documents(4000, seed=3)
    assert documents[:50] == generate_documents(50, seed=3)
    genders, sentences = Counter[str](), dict[str, Counter[str]]()
    for document in documents:
        assert 2 <= len(document) <= 3
        assert not has_pronoun(document[0].english)
        own = set()
        for sentence in document:
            if has_pronoun(sentence.english):
                (pronoun,) = pronouns(sentence.german)
                own.add(GENDERS[pronoun])
                sentences.setdefault(sentence.english, Counter())[GENDERS[pronoun]] += 1
        (gender,) = own  # all pronouns of a document are one thing
        genders[gender] += 1
    most = max(genders.values()) / genders.total()
    assert most < 0.5
    # Who knew nothing but the sentence would be right hardly more often than by the most frequent gender.
    frequent = [counts for counts in sentences.values() if counts.total() >= 50]
    assert len(frequent) > 10
    right = sum(max(counts.values()) for counts in frequent) / sum(counts.total() for counts in frequent)
    assert right < most + 0.1


def test_right_pronouns_are_counted(tmp_path: Path) -> None:
    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "scripts" / program), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    assert run("generate_documents.py", str(tmp_path), "--documents", "30").returncode == 0
    lines = {name: (tmp_path / name).read_text(encoding="utf-8").split("\n")[:-1] for name in ("test.en", "test.de")}
    train = (tmp_path / "train.en").read_text(encoding="utf-8").split("\n\n")[:-1]
    assert len(train) == 30 and not set(train) & set("\n".join(lines["test.en"]).split("\n\n"))
    places = [place for place, line in enumerate(lines["test.en"]) if has_pronoun(line)]
    wrong = list(lines["test.de"])
    for place in places[::4]:
        wrong[place] = "Sie ist er."
    (tmp_path / "wrong").write_text("".join(f"{line}\n" for line in wrong), encoding="utf-8")
    source, reference = str(tmp_path / "test.en"), str(tmp_path / "test.de")
    said = run("count_pronouns.py", source, reference, reference, str(tmp_path / "wrong")).stdout.split("\n")
    assert said[0].startswith(f"{len(places):,} sentences with 'it'")
    share = 1 - len(places[::4]) / len(places)
    assert "right pronoun in 100.0%" in said[1] and f"right pronoun in {share:.1%}" in said[2]
    assert run("count_pronouns.py", source, str(tmp_path / "train.de"), reference).returncode == 1
    assert run("generate_documents.py", str(tmp_path)).returncode == 1
