"""Maps of a sentence: cells have the weights, tokens stand beside them as they are."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.plotting import attention_map, memory_map, picture, style
from tests.plotting.test_files import texts

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")

SOURCE = ["▁Zwei", "▁$x_1$", "_b_", "</s>"]
TARGET = ["▁Two", "▁men", "</s>"]


def weights(*shape):
    numbers = np.random.default_rng(3).random(shape)
    return numbers / numbers.sum(-1, keepdims=True)


def maps(figure):
    return [axes for axes in figure.axes if axes.get_images() and axes.yaxis.get_ticks_position() != "right"]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_cells_are_the_weights_and_labels_the_tokens():
    found = weights(3, 4)
    figure = attention_map(found, SOURCE, TARGET, title="decoder.0")
    (axes,) = maps(figure)
    (image,) = axes.get_images()
    assert np.array_equal(image.get_array(), found) and image.get_clim() == (0, 1)
    assert labels(axes.xaxis) == ["␣Zwei", "␣$x_1$", "_b_", "</s>"] and labels(axes.yaxis) == ["␣Two", "␣men", "</s>"]
    assert not any(label.get_parse_math() for label in axes.get_xticklabels())
    assert axes.yaxis_inverted(), "the first target token is at the top"
    assert "decoder.0" in [text.get_text() for text in figure.texts]


def test_zero_is_what_is_behind_and_one_is_opaque():
    (axes,) = maps(attention_map(np.array([[0.0, 1.0]]), ["a", "b"], ["c"]))
    shown = axes.get_images()[0].to_rgba(np.array([0.0, 0.5, 1.0]))
    assert shown[0, 3] == 0 and 0.49 < shown[1, 3] < 0.51 and shown[2, 3] == 1
    assert len({tuple(colour[:3]) for colour in shown}) == 1


def test_heads_are_small_multiples_with_one_set_of_labels():
    found = weights(6, 3, 4)
    figure = attention_map(found, SOURCE, TARGET)
    panels = maps(figure)
    assert [text.get_text() for text in figure.texts][2:] == [f"head {n}" for n in range(1, 7)]
    assert all(np.array_equal(axes.get_images()[0].get_array(), head) for axes, head in zip(panels, found, strict=True))
    tops = {axes.get_position().y1 for axes in panels}
    lefts = {axes.get_position().x0 for axes in panels}
    assert len(tops) > 1 and len(tops) * len(lefts) >= 6
    with_rows = [axes for axes in panels if labels(axes.yaxis)]
    with_columns = [axes for axes in panels if labels(axes.xaxis)]
    assert {axes.get_position().x0 for axes in with_rows} == {min(lefts)} and len(with_rows) == len(tops)
    assert {axes.get_position().y1 for axes in with_columns} == {max(tops)} and len(with_columns) == len(lefts)


@pytest.mark.parametrize("count", [1, 3, 40, 300])
def test_labels_stay_inside_the_picture_whatever_the_length(count):
    figure = attention_map(
        weights(count, count), ["▁Donaudampfschifffahrt"] * count, ["▁W" * 30] * count, title="t" * 90
    )
    (axes,) = maps(figure)
    renderer = figure._get_renderer()
    page = figure.bbox
    for text in [*axes.get_xticklabels(), *axes.get_yticklabels(), *figure.texts]:
        box = text.get_window_extent(renderer)
        assert box.x0 >= page.x0 and box.y0 >= page.y0 and box.x1 <= page.x1 and box.y1 <= page.y1, text.get_text()
    first, second = (
        [label.get_window_extent(renderer) for label in axes.get_yticklabels()[:2]] if count > 1 else (None, None)
    )
    assert (
        first is None
        or abs(first.y0 - second.y0)
        >= 0.9
        * matplotlib.font_manager.FontProperties(size=axes.get_yticklabels()[0].get_size()).get_size_in_points()
        * figure.dpi
        / 72
    ), "lines of labels do not run into each other"


def test_memory_has_its_own_scale():
    found = np.tril(np.full((3, 3), 0.25))
    figure = memory_map(found, ["▁a", "b", "</s>"])
    (axes,) = maps(figure)
    assert axes.get_images()[0].get_clim() == (0, 0.25)
    assert labels(axes.xaxis) == labels(axes.yaxis) == ["␣a", "b", "</s>"]
    (bar,) = [axes for axes in figure.axes if axes.yaxis.get_ticks_position() == "right"]
    assert bar.get_ylim() == (0, 0.25) and {"0", "0.1", "0.2"} <= set(labels(bar.yaxis))
    assert maps(memory_map(np.zeros((3, 3)), ["a", "b", "c"]))[0].get_images()[0].get_clim() == (0, 1)


def test_tokens_that_are_no_plain_words():
    odd = ["▁日本", "▁مدرسة", "a\x1b[0m", "\ud800", "x" * 200, "▁", "&<>", "﷽"]
    figure = attention_map(weights(8, 8), odd, odd)
    (axes,) = maps(figure)
    shown = labels(axes.yaxis)
    assert shown[:4] == ["␣日本", "␣مدرسة", "a\\x1b[0m", "\\ud800"] and shown[5:] == ["␣", "&<>", "﷽"]
    assert len(shown[4]) < 40 and "\N{HORIZONTAL ELLIPSIS}" in shown[4]
    assert set(shown) <= set(texts(picture(figure, ".svg").decode()))
    assert picture(figure, ".png").startswith(b"\x89PNG")


def test_letters_that_no_font_has_are_reported_in_one_line(monkeypatch, recwarn):
    monkeypatch.setattr(
        style, "_fonts", lambda: iter([("DejaVu Sans", frozenset(map(ord, "ab␣"))), ("Other", frozenset([0x65E5]))])
    )
    style._chosen.cache_clear()
    (remark,) = style.font_remarks(["␣日本", "abc \t"], ending=".png")
    assert remark.startswith("no installed font has c 本, drawn as boxes; install one")
    assert style.font_remarks(["␣日本"], ending=".svg") == []
    assert style.families(["␣日本"]) == ["DejaVu Sans", "Other"]
    style._chosen.cache_clear()
    monkeypatch.undo()
    picture(attention_map(weights(1, 1), ["\U0001f9ff\U00020000"], ["a"]), ".png")
    assert not [warning for warning in recwarn if "lyph" in str(warning.message)]
