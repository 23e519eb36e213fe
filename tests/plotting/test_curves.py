"""Learning curves: the lines have the log's numbers, and are told apart without colours."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from nmt.errors import DataError
from nmt.plotting import curves, find_panels, read_logs
from nmt.plotting.curves import shortened
from nmt.plotting.style import COLOURS, drawing, line_styles
from tests.plotting.logs import events, train, validation, write_run

pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")

TITLES = ["Loss", "BLEU", "chrF", "Learning rate", "Gradient norm", "Speed"]


def panels_of(figure):
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}


def line_of(axes, label):
    (line,) = [line for line in axes.get_lines() if line.get_label() == label]
    return line


def data(line):
    return list(zip(line.get_xdata().tolist(), line.get_ydata().tolist(), strict=True))


def drawn(tmp_path, count, **more):
    logs = read_logs([write_run(tmp_path / f"run{n}", events(steps=4 + 2 * n)) for n in range(count)])
    return logs, curves(logs, **more)


def test_lines_have_the_numbers_of_the_logs(tmp_path):
    _, figure = drawn(tmp_path, 2)
    panels = panels_of(figure)
    assert list(panels) == TITLES
    for number in range(2):
        last = 200 + 100 * number
        steps = range(50, last + 1, 50)
        assert data(line_of(panels["Loss"], f"run{number}, train")) == [(step, 8 - step / 100) for step in steps]
        validated = range(100, last + 1, 100)
        assert data(line_of(panels["Loss"], f"run{number}, validation")) == [(s, 7 - s / 100) for s in validated]
        assert data(line_of(panels["BLEU"], f"run{number}, validation")) == [(s, s / 20) for s in validated]
        assert data(line_of(panels["Speed"], f"run{number}, train")) == [(step, 3000 + step) for step in steps]
    assert len(panels["BLEU"].get_lines()) == 2 and len(panels["Loss"].get_lines()) == 4


def test_titles_units_and_the_axis_are_named(tmp_path):
    logs, figure = drawn(tmp_path, 1, axis="minutes")
    panels = panels_of(figure)
    assert panels["Loss"].get_title(loc="right") == "nats a target token"
    assert [axes.get_xlabel() for axes in panels.values()] == ["", "", "", *["minutes of training"] * 3]
    assert data(line_of(panels["BLEU"], "run0, validation"))[-1] == (2.0, 10.0)
    two = panels_of(curves(logs, panels=find_panels(["lr", "bleu"], logs)))
    assert list(two) == ["Learning rate", "BLEU"]
    assert [axes.get_xlabel() for axes in two.values()] == ["updates"] * 2


def test_twenty_runs_are_told_apart_without_colours(tmp_path):
    _, figure = drawn(tmp_path, 20)
    lines = panels_of(figure)["BLEU"].get_lines()
    looks = {(repr(line._dash_pattern), line.get_marker()) for line in lines}
    assert len(lines) == len(looks) == 20
    assert len({(look, line.get_color()) for look, line in zip(looks, lines, strict=True)}) == 20
    assert all(line.get_markevery() == (0, 1) for line in lines), "the few points of a validation are all marked"
    neighbours = itertools.pairwise(line_styles(84))
    assert all(a.dash != b.dash and a.marker != b.marker and a.colour != b.colour for a, b in neighbours)


def test_the_markers_of_runs_are_few_and_at_different_points(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run{n}", events(steps=20)) for n in range(2)]
    axes = panels_of(curves(read_logs(runs)))["Loss"]
    assert [line_of(axes, f"run{n}, train").get_markevery() for n in range(2)] == [(0, 4), (2, 4)]


def test_training_and_validation_differ_by_more_than_colour(tmp_path):
    _, figure = drawn(tmp_path, 1)
    training, validation = (line_of(panels_of(figure)["Loss"], f"run0, {kind}") for kind in ("train", "validation"))
    assert training.get_color() == validation.get_color()
    assert training.get_linewidth() < validation.get_linewidth()
    assert training.get_markerfacecolor() == "none" != validation.get_markerfacecolor()
    assert training.get_alpha() < 1 == validation.get_alpha()
    alone = line_of(panels_of(figure)["Learning rate"], "run0, train")
    assert alone.get_alpha() == 1, "nothing is drawn over it"


@pytest.mark.parametrize("page", ["#FFFFFF", "#15181C"])
def test_colours_stand_out_on_white_and_on_dark_pages(page):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for colour in COLOURS:
        darker, lighter = sorted((luminance(page), luminance(colour)))
        assert (lighter + 0.05) / (darker + 0.05) >= 3, f"the least that WCAG 2.1 asks for graphics: {colour}"


def test_the_legend_has_all_labels_and_fits(tmp_path):
    labels = ["_underscore", "$x_1$", "a name that is very long " * 20, "日本", *(f"run {n}" for n in range(16))]
    runs = [write_run(tmp_path / str(n), events()) for n in range(20)]
    figure = curves(read_logs(runs, labels=labels))
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[:2] == labels[:2] and texts[3:] == [*labels[3:], "training", "validation"]
    assert texts[2].startswith("a name that") and "\N{HORIZONTAL ELLIPSIS}" in texts[2]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    with drawing():
        renderer = figure._get_renderer()
        box, page = legend.get_window_extent(renderer), figure.bbox
        lowest = min(axes.get_tightbbox(renderer).y0 for axes in figure.axes)
    assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0
    assert box.y1 <= lowest, "the legend lies below the panels"


def test_one_column_for_a_phone(tmp_path):
    _, figure = drawn(tmp_path, 2, columns=1)
    panels = list(panels_of(figure).values())
    assert figure.get_figwidth() == 3.6 and len({axes.get_position().y0 for axes in panels}) == 6
    assert [axes.get_xlabel() for axes in panels] == [*[""] * 5, "updates"]


def test_scales_that_begin_at_zero_and_have_room_at_the_top(tmp_path):
    flat = [train(50, lr=0.02), validation(50, bleu=0.0), train(100, lr=0.02), validation(100, bleu=0.0)]
    panels = panels_of(curves(read_logs([write_run(tmp_path / "a", flat)])))
    assert panels["Learning rate"].get_ylim() == (0, pytest.approx(0.021))
    assert panels["BLEU"].get_ylim()[0] == 0 < panels["BLEU"].get_ylim()[1]
    assert panels["Speed"].get_ylim() == (0, pytest.approx(1.05 * 3100))


def test_a_gap_in_a_line_leaves_its_panel_as_it_is(tmp_path: Path) -> None:
    whole = [train(50 * n) for n in range(2, 9)]
    gap = [train(50, loss=None), *whole[:3], train(250, loss=None), *whole[3:]]
    panels = [
        panels_of(curves(read_logs([write_run(tmp_path / name, what)])))["Loss"]
        for name, what in (("a", whole), ("b", gap))
    ]
    assert panels[0].get_ylim() == panels[1].get_ylim() and panels[0].get_xlim() == panels[1].get_xlim()
    heights = [height for _, height in data(line_of(panels[1], "b, train"))]
    assert [math.isnan(height) for height in heights] == [n in (0, 4) for n in range(9)]


def test_places_without_a_panel_are_empty_and_the_panels_above_them_name_the_axis(tmp_path: Path) -> None:
    logs, _ = drawn(tmp_path, 1)
    figure = curves(logs, panels=find_panels(["loss", "bleu", "chrf", "lr", "norm"], logs))
    assert [axes.get_visible() for axes in figure.axes] == [*[True] * 5, False]
    assert [axes.get_xlabel() for axes in figure.axes[:5]] == ["", "", *["updates"] * 3]


def test_a_shortened_label_has_the_length_it_may_have() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghij", 6) == "ab\N{HORIZONTAL ELLIPSIS}hij"


def test_one_point_is_seen(tmp_path):
    figure = curves(read_logs([write_run(tmp_path / "a", [train(50)])]))
    axes = panels_of(figure)["Loss"]
    (line,) = axes.get_lines()
    assert data(line) == [(50, 7.5)] and line.get_marker() == "o" and line.get_markevery() == (0, 1)
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    assert x0 < 50 < x1 and y0 < 7.5 < y1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a"], "nothing is to be told from validation"


def test_a_steep_start_does_not_flatten_the_rest_but_a_late_rise_is_seen(tmp_path):
    steep = [train(50 * n, loss=100 if n == 1 else 3 - n / 100) for n in range(1, 100)]
    axes = panels_of(curves(read_logs([write_run(tmp_path / "a", steep)])))["Loss"]
    assert axes.get_ylim()[1] < 4
    axes = panels_of(curves(read_logs([write_run(tmp_path / "b", [*steep, train(5000, loss=50.0)])])))["Loss"]
    assert axes.get_ylim()[1] > 50


def test_norms_far_apart_have_a_logarithmic_scale_with_plain_numbers(tmp_path):
    far = [train(50 * n, grad_norm=10.0 ** (n % 5 - 2)) for n in range(1, 20)]
    figure = curves(read_logs([write_run(tmp_path / "a", far)]))
    axes = panels_of(figure)["Gradient norm"]
    assert axes.get_yscale() == "log"
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert "0.1" in labels and not any("$" in label for label in labels)
    far[3]["grad_norm"] = 0.0
    figure = curves(read_logs([write_run(tmp_path / "b", far)]))
    assert panels_of(figure)["Gradient norm"].get_yscale() == "linear", "zero has no place on the other"


def test_nothing_to_draw(tmp_path):
    run = write_run(tmp_path / "a", [{"event": "start", "step": 0}])
    with pytest.raises(DataError, match=f"{run}/log.jsonl: nothing to draw over updates"):
        curves(read_logs([run]))
