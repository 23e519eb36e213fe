"""The words of the demo corpus: hand-checked German and English forms."""

from __future__ import annotations

import pytest

from scripts.demo_grammar import german, words
from scripts.demo_grammar.english import third_person
from scripts.demo_grammar.german import Case
from scripts.demo_grammar.words import Pronoun, english_number, find_noun, find_verb, german_number

NOUN_FORMS = [
    # English, plural, nominative, accusative, dative, genitive
    ("man", False, "Mann Mann Mann Mannes"),
    ("man", True, "Männer Männer Männern Männer"),
    ("boy", False, "Junge Jungen Jungen Jungen"),
    ("student", False, "Student Studenten Studenten Studenten"),
    ("neighbour", False, "Nachbar Nachbarn Nachbarn Nachbarn"),
    ("bear", False, "Bär Bären Bären Bären"),
    ("woman", False, "Frau Frau Frau Frau"),
    ("house", False, "Haus Haus Haus Hauses"),
    ("hospital", False, "Krankenhaus Krankenhaus Krankenhaus Krankenhauses"),
    ("bus", False, "Bus Bus Bus Busses"),
    ("garden", False, "Garten Garten Garten Gartens"),
    ("museum", True, "Museen Museen Museen Museen"),
    ("car", True, "Autos Autos Autos Autos"),
    ("apple", True, "Äpfel Äpfel Äpfeln Äpfel"),
    ("cheese", False, "Käse Käse Käse Käses"),
    ("kitchen table", False, "Küchentisch Küchentisch Küchentisch Küchentisches"),
    ("front door", True, "Haustüren Haustüren Haustüren Haustüren"),
    ("bookshelf", True, "Bücherregale Bücherregale Bücherregalen Bücherregale"),
]
CASES: tuple[Case, ...] = ("nominative", "accusative", "dative", "genitive")


@pytest.mark.parametrize(("english", "plural", "forms"), NOUN_FORMS)
def test_nouns_decline(english: str, plural: bool, forms: str) -> None:
    noun = find_noun(english)
    assert [german.noun_form(noun, case, plural=plural) for case in CASES] == forms.split()


def test_compounds_take_gender_and_plural_of_their_head() -> None:
    door = find_noun("front door")
    assert (door.german, door.gender, door.german_plural) == ("Haustür", "f", "Haustüren")
    desk = find_noun("desk")
    assert (desk.german, desk.gender, desk.english_plural) == ("Schreibtisch", "m", "desks")
    assert find_noun("children's book").english_plural == "children's books"
    assert find_noun("bookshelf").english_plural == "bookshelves"


@pytest.mark.parametrize(
    ("determiner", "rows"),
    [
        ("the", "der die das die / den die das die / dem der dem den / des der des der"),
        ("this", "dieser diese dieses diese / diesen diese dieses diese / diesem dieser diesem diesen"),
        ("no", "kein keine kein keine / keinen keine kein keine / keinem keiner keinem keinen"),
        ("our", "unser unsere unser unsere / unseren unsere unser unsere / unserem unserer unserem unseren"),
        ("her", "ihr ihre ihr ihre / ihren ihre ihr ihre / ihrem ihrer ihrem ihren / ihres ihrer ihres ihrer"),
    ],
)
def test_determiners(determiner: words.Determiner, rows: str) -> None:
    for case, row in zip(CASES, rows.split(" / "), strict=False):
        forms = [german.determiner_form(determiner, case, slot) for slot in ("m", "f", "n", "plural")]
        assert forms == row.split(), case


def test_the_indefinite_article_has_no_plural() -> None:
    assert german.determiner_form("a", "accusative", "m") == "einen"
    assert german.determiner_form("a", "dative", "f") == "einer"
    assert german.determiner_form("a", "nominative", "plural") == ""


@pytest.mark.parametrize(
    ("infinitive", "changed", "forms"),
    [
        ("kaufen", None, "kaufe kaufst kauft kaufen"),
        ("arbeiten", None, "arbeite arbeitest arbeitet arbeiten"),
        ("finden", None, "finde findest findet finden"),
        ("zeichnen", None, "zeichne zeichnest zeichnet zeichnen"),
        ("regnen", None, "regne regnest regnet regnen"),
        ("wohnen", None, "wohne wohnst wohnt wohnen"),
        ("träumen", None, "träume träumst träumt träumen"),
        ("tanzen", None, "tanze tanzt tanzt tanzen"),
        ("füttern", None, "füttere fütterst füttert füttern"),
        ("lesen", "lies", "lese liest liest lesen"),
        ("essen", "iss", "esse isst isst essen"),
        ("laden", "läd", "lade lädst lädt laden"),
        ("fahren", "fähr", "fahre fährst fährt fahren"),
        ("haben", None, "habe hast hat haben"),
        ("sein", None, "bin bist ist sind"),
        ("müssen", None, "muss musst muss müssen"),
        ("werden", None, "werde wirst wird werden"),
    ],
)
def test_present(infinitive: str, changed: str | None, forms: str) -> None:
    singular = [german.present(infinitive, changed, person, plural=False) for person in (1, 2, 3)]
    assert [*singular, german.present(infinitive, changed, 3, plural=True)] == forms.split()


@pytest.mark.parametrize(
    ("english", "participle", "zu"),
    [
        ("buy", "gekauft", "zu kaufen"),
        ("sell", "verkauft", "zu verkaufen"),
        ("visit", "besucht", "zu besuchen"),
        ("repair", "repariert", "zu reparieren"),
        ("photograph", "fotografiert", "zu fotografieren"),
        ("work", "gearbeitet", "zu arbeiten"),
        ("draw", "gezeichnet", "zu zeichnen"),
        ("open", "aufgemacht", "aufzumachen"),
        ("turn on", "eingeschaltet", "einzuschalten"),
        ("call", "angerufen", "anzurufen"),
        ("come back", "zurückgekommen", "zurückzukommen"),
        ("forget", "vergessen", "zu vergessen"),
        ("belong to", "gehört", "zu gehören"),
    ],
)
def test_participle_and_zu_infinitive(english: str, participle: str, zu: str) -> None:
    verb = find_verb(english)
    assert german.participle(verb) == participle
    assert german.zu_infinitive(verb) == zu


@pytest.mark.parametrize(
    ("preposition", "phrase", "expected"),
    [
        ("in", "dem Garten", "im Garten"),
        ("in", "das alte Haus", "ins alte Haus"),
        ("in", "der Küche", "in der Küche"),
        ("in", "den Garten", "in den Garten"),
        ("zu", "der Schule", "zur Schule"),
        ("zu", "dem Bahnhof", "zum Bahnhof"),
        ("von", "den Kindern", "von den Kindern"),
        ("von", "ihm", "von ihm"),
    ],
)
def test_contractions(preposition: str, phrase: str, expected: str) -> None:
    assert german.contract(preposition, phrase) == expected


@pytest.mark.parametrize(
    ("pronoun", "forms"),
    [
        (Pronoun(person=1), ("ich", "mich", "mir")),
        (Pronoun(person=2), ("du", "dich", "dir")),
        (Pronoun(gender="f"), ("sie", "sie", "ihr")),
        (Pronoun(gender="n", thing=True), ("es", "es", "ihm")),
        (Pronoun(gender="f", plural=True), ("sie", "sie", "ihnen")),
        (Pronoun(person=1, plural=True), ("wir", "uns", "uns")),
    ],
)
def test_pronouns(pronoun: Pronoun, forms: tuple[str, str, str]) -> None:
    assert tuple(german.pronoun_form(pronoun, case) for case in CASES[:3]) == forms


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_numbers(value: int, english: str, german: str) -> None:
    assert (english_number(value), german_number(value)) == (english, german)


@pytest.mark.parametrize("value", [-1, 100])
def test_numbers_outside_the_range_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="0 to 99"):
        german_number(value)


@pytest.mark.parametrize(
    ("base", "form"),
    [("go", "goes"), ("wash", "washes"), ("have", "has"), ("look for", "looks for"), ("play", "plays")],
)
def test_english_third_person(base: str, form: str) -> None:
    assert third_person(base) == form


def test_english_past_and_plural() -> None:
    assert find_verb("look for").english_past == "looked for"
    assert find_verb("close").english_past == "closed"
    assert find_verb("tidy up").english_past == "tidied"
    assert find_verb("play").english_past == "played"
    assert words.regular_plural("city") == "cities"
    assert words.regular_plural("bus") == "buses"
    assert words.regular_plural("boy") == "boys"


def test_every_word_means_one_thing() -> None:
    """Neither language has two nouns, adjectives or verbs for one of the other."""
    for english in (True, False):
        nouns = [noun.english if english else noun.german for noun in words.nouns()]
        adjectives = [word.english if english else word.german for word in words.adjectives()]
        verbs = [
            (verb.english, verb.particle, verb.frame if ":" in verb.frame else "")
            if english
            else (verb.prefix, verb.infinitive, "")
            for verb in words.verbs()
        ]
        for entries in (nouns, adjectives, verbs):
            assert len(entries) == len(set(entries))


def test_english_plurals_show_their_number() -> None:
    assert [noun.english for noun in words.nouns() if not noun.mass and noun.english == noun.english_plural] == []


def test_tags_of_verbs_name_nouns() -> None:
    known = {tag for noun in words.nouns() for tag in noun.tags}
    for verb in words.verbs():
        assert {*verb.subjects, *verb.objects} <= known, verb.english
