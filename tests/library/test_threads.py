"""Several threads use one translator, or several, at once: each gets what it would get alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.library import engine
from nmt.ops.dispatch import selection
from tests.conftest import HANGS
from tests.library.conftest import SENTENCES
from tests.library.test_turns import waiting
from tests.tiny_run import make_run

CALLS: list[tuple[list[str], dict[str, Any]]] = [
    (SENTENCES, {}),
    (SENTENCES[::-1], {"beam_size": 1}),
    (SENTENCES[2:], {"beam_size": 5, "n_best": 3}),
    (SENTENCES[:4], {"length_penalty": 2.0}),
    (SENTENCES * 3, {"batch_tokens": 20}),
    (SENTENCES, {"split_long": 2}),
    (SENTENCES[3:6], {"max_length_offset": 0}),
    (SENTENCES, {"beam_size": 2, "scores": False}),
]


def outcome(results: list[nmt.Result]) -> list[Any]:
    return [(r.source, [(h.text, repr(h.score)) for h in r.n_best], r.notes) for r in results]


def at_once(work: list[Callable[[], Any]]) -> list[Any]:
    """The values of functions that begin at the same moment, each in a thread of its own."""
    start = threading.Barrier(len(work))

    def run(function: Callable[[], Any]) -> Any:
        start.wait(HANGS)
        return function()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def test_eight_threads_with_other_texts_and_options_get_what_one_gets(
    local: nmt.Translator,
) -> None:
    alone = [outcome(local.translate(text, **options)) for text, options in CALLS]

    def three_times(text: list[str], options: dict[str, Any]) -> list[Any]:
        return [outcome(local.translate(text, **options)) for _ in range(3)]

    found = at_once([lambda call=call: three_times(*call) for call in CALLS])  # type: ignore[misc]
    assert found == [[wanted] * 3 for wanted in alone]


def test_streams_and_scores_in_threads(local: nmt.Translator) -> None:
    targets = ["x y"] * len(SENTENCES)
    streamed, scored = outcome(local.translate(SENTENCES)), local.score(SENTENCES, targets)
    found = at_once(
        [lambda: outcome([*local.stream(iter(SENTENCES), window=len(SENTENCES))])] * 4
        + [lambda: local.score(SENTENCES, targets)] * 4
    )
    assert found == [streamed] * 4 + [scored] * 4


def test_translators_with_other_kernels_and_precisions_do_not_disturb_each_other(
    tmp_path: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_run(tmp_path / "plain")
    for file in plain.rglob("config.yaml"):
        file.write_text(file.read_text().replace("kernels: auto", "kernels: reference"))
    with (
        nmt.load(tiny_run, device="cpu", precision="fp32") as first,
        nmt.load(plain, device="cpu", precision="int8") as second,
    ):
        seen: dict[str, set[str]] = {"auto": set(), "reference": set()}
        original = engine.Translator.translate_window

        def looked_at(self: Any, lines: Any, **options: Any) -> Any:
            chosen = selection().choice
            results = original(self, lines, **options)
            seen[chosen].add(self.precision.name)
            assert selection().choice == chosen
            return results

        monkeypatch.setattr(engine.Translator, "translate_window", looked_at)
        before = selection()
        alone = [outcome(translator.translate(SENTENCES)) for translator in (first, second)]
        found = at_once([lambda t=t: outcome(t.translate(SENTENCES)) for t in (first, second) * 4])  # type: ignore[misc]
        assert found == alone * 4
        assert seen == {"auto": {"fp32"}, "reference": {"int8"}}
        assert selection() is before


def test_a_call_whose_turn_comes_after_the_end_of_its_translator_says_so(tiny_run: Path) -> None:
    translator = nmt.load(tiny_run, device="cpu")
    turns, said = translator._turns, list[str]()  # type: ignore[attr-defined]

    def late() -> None:
        with pytest.raises(nmt.NmtError) as caught:
            translator.translate("a")
        said.append(str(caught.value))

    threads = [threading.Thread(target=translator.close), threading.Thread(target=late)]
    with turns:
        for count, thread in enumerate(threads, 1):
            thread.start()
            waiting(turns, count)
    for thread in threads:
        thread.join(HANGS)
    assert said == ["this translator is closed"]


def test_a_short_call_need_not_wait_for_the_end_of_a_long_one(local: nmt.Translator) -> None:
    order: list[str] = []
    began = threading.Event()

    def long() -> None:
        began.set()
        local.translate(SENTENCES * 12, batch_tokens=10)
        order.append("long")

    thread = threading.Thread(target=long)
    thread.start()
    began.wait(HANGS)
    while not local._turns._is_taken:  # type: ignore[attr-defined]
        pass
    local.translate("a")
    order.append("short")
    thread.join()
    assert order == ["short", "long"]


def test_another_thread_ends_a_search(local: nmt.Translator) -> None:
    """Between two of its steps: of this one there would be a million."""
    stop = nmt.Stop()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    with pytest.raises(nmt.StoppedError):
        local.translate("a b", stop=stop, max_length_offset=1_000_000, min_length=1_000_000)
    timer.join()
    assert outcome([local.translate("a b", stop=nmt.Stop())]) == outcome([local.translate("a b")])
    with pytest.raises(nmt.StoppedError):  # which has been set before
        local.translate(["a b"], stop=stop)


def test_a_long_search_lets_others_have_their_turns(local: nmt.Translator) -> None:
    stop = nmt.Stop()
    endless = {"max_length_offset": 1_000_000, "min_length": 1_000_000}
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(local.translate, "a b", stop=stop, **endless)
        assert outcome([local.translate("c", max_length_offset=3)])
        assert not long.done()
        stop.set()
        with pytest.raises(nmt.StoppedError):
            long.result(HANGS)


def test_parts_and_hypotheses_say_what_a_translation_costs(local: nmt.Translator) -> None:
    assert local.parts(["a b c", "", "d"]) == [[3], [], [1]]
    assert local.parts(["a b c d a"], split_long=2) == [[2, 2, 1]]
    assert (local.hypotheses(beam_size=7), local.hypotheses(beam_size=1)) == (7, 1)
    with pytest.raises(nmt.ConfigError, match="beam_size"):
        local.hypotheses(beam_size=0)
