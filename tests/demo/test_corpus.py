"""The demo corpus as written: the same bytes each time, nothing twice, every phenomenon, sound agreement."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

from nmt.demo import DEV_PAIRS, TEST_PAIRS, TRAIN_PAIRS, Pair, generate, lexicon, write_corpus
from nmt.demo.corpus import check_languages
from nmt.demo.grammar import KINDS
from nmt.errors import ConfigError, DataError

SIZES = {"train": TRAIN_PAIRS, "dev": DEV_PAIRS, "test": TEST_PAIRS}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "corpus"
    write_corpus(folder, "en", "de")
    return folder


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return generate(4000)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_sizes(corpus: Path) -> None:
    assert {name: len(lines(corpus / f"{name}.en")) for name in SIZES} == SIZES
    assert {name: len(lines(corpus / f"{name}.de")) for name in SIZES} == SIZES
    assert sorted(path.name for path in corpus.iterdir()) == sorted(
        f"{name}.{side}" for name in SIZES for side in ("en", "de")
    )


@pytest.mark.parametrize("side", ["en", "de"])
def test_no_sentence_comes_twice_in_a_part_or_in_two(corpus: Path, side: str) -> None:
    counts = Counter(line for name in SIZES for line in lines(corpus / f"{name}.{side}"))
    assert counts.most_common(1)[0][1] == 1
    assert len(counts) == sum(SIZES.values())


@pytest.mark.slow
def test_the_other_direction_is_the_same_corpus(corpus: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path, "de", "en")
    for path in corpus.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_the_corpus_does_not_depend_on_how_much_is_asked_for(pairs: list[Pair]) -> None:
    assert generate(100) == pairs[:100]


def test_the_corpus_is_the_same_in_every_version_of_python(pairs: list[Pair]) -> None:
    """Other sentences here mean other figures in the demo: after a change of the grammar, measure them anew."""
    assert pairs[0][:2] == ("The bear is seventy-two years old.", "Der Bär ist zweiundsiebzig Jahre alt.")
    assert pairs[999][:2] == (
        "The new knives are on the bed.",
        "Die neuen Messer sind auf dem Bett.",
    )


def test_the_whole_corpus_is_that_of_the_published_figures(corpus: Path) -> None:
    """As above, but every line: what a change of the grammar changes somewhere may be in neither of those two."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(corpus.iterdir())))
    assert digest.hexdigest() == "588e49e6210ebbfbff4cdb754fbdd96d8ea88c714910f68002fd4c511b287488"


def test_other_languages_are_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.source_language.*'fr'-'de'"):
        write_corpus(tmp_path, "fr", "de")
    with pytest.raises(ConfigError, match=r"data\.source_language"):
        write_corpus(tmp_path, "en", "en")


def test_both_directions_are_there() -> None:
    for languages in (("en", "de"), ("de", "en")):
        check_languages(*languages)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*cannot be written"):
        write_corpus(tmp_path / "file" / "corpus", "en", "de")


def test_sentences_are_sentences(pairs: list[Pair]) -> None:
    for pair in pairs:
        for text in (pair.english, pair.german):
            assert re.fullmatch(r"[A-ZÄÖÜ][^\n?.]+[.?]", text), text
            assert "  " not in text and " ," not in text and ",." not in text, text
            assert 2 <= len(text.split()) <= 14, text
        assert (pair.english[-1] == "?") == (pair.german[-1] == "?")


def test_every_kind_of_sentence_comes(pairs: list[Pair]) -> None:
    counts = Counter(pair.kind for pair in pairs)
    assert set(counts) == {kind.build.__name__ for kind in KINDS}
    assert min(counts.values()) >= 50


PHENOMENA = {
    "separable verb, prefix at the end": r"\b(macht|schaltet|ruft|holt|zieht|räumt)\b.* (auf|zu|ein|aus|an|ab)\.$",
    "separable participle": r"\b(aufgemacht|eingeschaltet|angerufen|abgeholt|aufgestanden)\b",
    "perfect with sein": r"\b(ist|sind|bin|bist)\b.* (gegangen|gefahren|gelaufen|gekommen|aufgestanden)\b",
    "perfect with haben": r"\b(hat|haben|habe|hast)\b.* (gekauft|gelesen|gesehen|gefunden|geholfen)\b",
    "verb last after weil": r", weil [^,]* (ist|sind|hat|haben|braucht|brauchen|will|kann|muss)\.$",
    "verb last after dass": r", dass [^,]* (ist|sind|hat|haben|soll|wird)\.$",
    "inversion after wenn": r"^Wenn .*, [a-zäöü]+ ",
    "inversion after time": r"^(Heute|Gestern|Morgen|Am Montag|Jetzt) [a-zäöü]+ ",
    "modal with infinitive at the end": r"\b(kann|muss|darf|soll|will)\b.* [a-zäöü]+en\.$",
    "kein": r"\bkein(e|en|er|em)?\b",
    "nicht": r"\bnicht\b",
    "number": r"\b(ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)und(zwanzig|dreißig|vierzig|fünfzig|sechzig)\b",
    "dative plural": r"\b(den|meinen|unseren) (\w+en )?(Männern|Kindern|Brüdern|Ärzten|Söhnen|Vätern)\b",
    "genitive": r"\bde[sr] (Mannes|Kindes|Bruders|Nachbarn|Bauern|Frau|Königin)\b",
    "weak masculine": r"\b(den|dem|einen|einem) (\w+en )?(Jungen|Studenten|Nachbarn|Bären|Löwen|Kollegen)\b",
    "strong adjective": r"\b(kaltes Wasser|kalte Milch|heißen Tee|heiße Milch|kalten Kaffee|heißen Kaffee)\b",
    "contraction": r"\b(im|ins|am|zum|zur|vom) ",
    "comparative": r"\b(größer|älter|schneller|teurer|jünger) als\b",
    "relative clause": r", (der|die|das|den|dem|denen) [^,]*, (ist|sind) ",
    "um zu": r", um .* (zu [a-zäöüß]+|[a-zäöü]+zu[a-zäöüß]+)\.$",
    "compound": r"\b(Küchentisch|Haustür|Apfelbaum|Wintermantel|Kinderbuch|Schreibtisch)",
    "es gibt": r"\bgibt es (einen|eine|ein) ",
    "question word": r"^(Wer|Was|Wen|Wem|Wo|Wann|Warum|Wie viele) .*\?$",
    "gern": r"\bgern\b",
}


@pytest.mark.parametrize("pattern", PHENOMENA.values(), ids=PHENOMENA)
def test_phenomena(pairs: list[Pair], pattern: str) -> None:
    assert sum(bool(re.search(pattern, pair.german)) for pair in pairs) >= 4


def test_number_of_nouns_is_the_same_in_both_languages(pairs: list[Pair]) -> None:
    """Each English noun form has its German noun in the same number (all cases counted)."""
    forms = noun_forms()
    for pair in pairs:
        english, german = words_of(pair.english), words_of(pair.german)
        for (singular, plural), (german_singular, german_plural) in forms:
            if german_singular & german_plural:
                continue  # "Jungen", "Schlüssel": the form does not tell
            if mentions(english, singular) and not mentions(english, plural):
                assert not german_plural & german, pair
            if mentions(english, plural) and not mentions(english, singular):
                assert not german_singular & german, pair


def words_of(sentence: str) -> set[str]:
    return set(re.findall(r"[\w'-]+", sentence))


def mentions(words: set[str], phrase: str) -> bool:
    return set(phrase.split()) <= words


def noun_forms() -> list[tuple[tuple[str, str], tuple[set[str], set[str]]]]:
    """One-word nouns: English forms and the sets of German forms."""
    from nmt.demo.german_words import noun_form

    cases = ("nominative", "accusative", "dative", "genitive")
    return [
        (
            (noun.english, noun.english_plural),
            (
                {noun_form(noun, case, plural=False) for case in cases},
                {noun_form(noun, case, plural=True) for case in cases},
            ),
        )
        for noun in lexicon.nouns()
        if not noun.mass and " " not in noun.english
    ]


def test_articles_agree_with_the_gender(pairs: list[Pair]) -> None:
    """Wherever a nominative "der/die/das/ein/eine" opens a German sentence, the noun has that gender."""
    singular = {noun.german: noun.gender for noun in lexicon.nouns()}
    plural = {noun.german_plural for noun in lexicon.nouns()}
    checked = 0
    for pair in pairs:
        match = re.match(r"(Der|Die|Das|Diese[rs]?|Mein|Meine) (?:[a-zäöüß]+ )?([A-ZÄÖÜ]\w+)", pair.german)
        if match is None:
            continue
        article, noun = match.groups()
        genders = {"Der": "m", "Das": "n", "Dieser": "m", "Dieses": "n", "Die": "f", "Diese": "f", "Meine": "f"}
        feminine_or_plural = article in ("Die", "Diese", "Meine")
        allowed = {"m", "n"} if article == "Mein" else {genders[article]}
        assert singular.get(noun) in allowed or (feminine_or_plural and noun in plural), pair
        checked += 1
    assert checked > 1000


def test_verbs_agree_with_their_subject(pairs: list[Pair]) -> None:
    """A sentence that opens with "Die": a feminine singular has a singular verb, all else a plural one."""
    feminine = {noun.german for noun in lexicon.nouns() if noun.gender == "f"}
    for pair in pairs:
        match = re.match(r"(?:Die|Diese) (?:[a-zäöüß]+ )?([A-ZÄÖÜ]\w+) (\w+) ", pair.german)
        if match is None:
            continue
        noun, verb = match.groups()
        plural_verb = verb == "sind" or re.search(r"[^n]n$", verb) is not None
        assert (noun in feminine) != plural_verb, pair
