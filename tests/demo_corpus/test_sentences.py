"""The sentences of the demo corpus: those that nmt has, every phenomenon, sound agreement."""

from __future__ import annotations

import bz2
import re
from collections import Counter

import pytest

from nmt.demo_corpus.text import PAIRS, TEXT
from scripts.demo_grammar.german import noun_form
from scripts.demo_grammar.sentences import KINDS, Pair, generate, text_of
from scripts.demo_grammar.words import nouns


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return generate(4000)


def test_the_corpus_does_not_depend_on_how_much_is_asked_for(pairs: list[Pair]) -> None:
    assert generate(100) == pairs[:100]


def test_the_corpus_is_the_same_in_every_version_of_python(pairs: list[Pair]) -> None:
    """Other sentences here mean other figures in the demo: after a change of the grammar, measure them anew."""
    assert pairs[0][:2] == ("The bear is seventy-two years old.", "Der Bär ist zweiundsiebzig Jahre alt.")
    assert pairs[999][:2] == (
        "The new knives are on the bed.",
        "Die neuen Messer sind auf dem Bett.",
    )


def test_the_grammar_has_made_the_text_of_nmt() -> None:
    assert bz2.decompress(TEXT.read_bytes()).decode() == text_of(generate(PAIRS))


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
    cases = ("nominative", "accusative", "dative", "genitive")
    return [
        (
            (noun.english, noun.english_plural),
            (
                {noun_form(noun, case, plural=False) for case in cases},
                {noun_form(noun, case, plural=True) for case in cases},
            ),
        )
        for noun in nouns()
        if not noun.mass and " " not in noun.english
    ]


def test_articles_agree_with_the_gender(pairs: list[Pair]) -> None:
    """Wherever a nominative "der/die/das/ein/eine" opens a German sentence, the noun has that gender."""
    singular = {noun.german: noun.gender for noun in nouns()}
    plural = {noun.german_plural for noun in nouns()}
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
    feminine = {noun.german for noun in nouns() if noun.gender == "f"}
    for pair in pairs:
        match = re.match(r"(?:Die|Diese) (?:[a-zäöüß]+ )?([A-ZÄÖÜ]\w+) (\w+) ", pair.german)
        if match is None:
            continue
        noun, verb = match.groups()
        plural_verb = verb == "sind" or re.search(r"[^n]n$", verb) is not None
        assert (noun in feminine) != plural_verb, pair
