"""Pictures as files and as parts of pages."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from nmt.errors import ConfigError
from nmt.plotting import as_svg, attention_map, check_ending, curves, picture, read_logs
from nmt.plotting.style import COLOURS, INK
from tests.plotting.logs import events, write_run

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def figure(tmp_path):
    return curves(read_logs([write_run(tmp_path / name, events()) for name in ("a", "b")], labels=["$a_b$", "<b> & c"]))


def attributes(svg):
    return [(key, value) for element in ElementTree.fromstring(svg).iter() for key, value in element.attrib.items()]


def texts(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def check_references(svg):
    """All references are to ids of the picture, and nothing else names a place elsewhere."""
    found = attributes(svg)
    ids = [value for key, value in found if key == "id"]
    assert len(ids) == len(set(ids))
    links = [value for key, value in found if key.endswith("href")]
    targets = {link for link in links if not link.startswith("data:image/png;base64,")}
    targets |= {f"#{name}" for _, value in found for name in re.findall(r"url\(#([^)]*)\)", value)}
    assert targets <= {f"#{name}" for name in ids}
    assert not any("url(" in value.replace("url(#", "") for _, value in found)
    assert not re.search(r"<(script|style|metadata|!DOCTYPE|foreignObject)", svg)
    places = set(re.findall(r'[a-z]+://[^"\s]*', svg))
    assert places <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, "names of namespaces alone"


def test_endings():
    assert check_ending("a/b.PNG") == ".png" and check_ending("x.svg") == ".svg"
    for name in ("curves.jpg", "curves", "png"):
        with pytest.raises(ConfigError, match=f"{name}: ends in none of .png, .svg, .pdf"):
            check_ending(name)


def test_a_png(figure):
    content = picture(figure, ".png")
    assert content.startswith(b"\x89PNG") and content == picture(figure, ".png")
    assert b"Software" not in content and b"Date" not in content
    size = [int.from_bytes(content[place : place + 4], "big") for place in (16, 20)]
    assert size == [int(150 * inches) for inches in figure.get_size_inches()]


def test_a_pdf(figure):
    content = picture(figure, ".pdf")
    assert content.startswith(b"%PDF") and content == picture(figure, ".pdf")
    assert b"CreationDate" not in content and b"/Type /Font" in content, "text is text"


def test_an_svg_of_a_file(figure):
    svg = picture(figure, ".svg").decode()
    check_references(svg)
    assert {"$a_b$", "<b> & c", "training", "BLEU"} <= set(texts(svg)), "text is text"
    assert "fill: #ffffff" in svg and INK.lower() in svg, "black on white, wherever it is shown"


def test_the_same_picture_has_the_same_bytes_whatever_was_drawn_before(tmp_path):
    logs = read_logs([write_run(tmp_path / name, events()) for name in ("a", "b")])
    first, before = curves(logs), dict(matplotlib.rcParams)
    own = {"lines.linewidth": 9, "svg.hashsalt": None, "font.size": 20, "axes.titlepad": 30, "xtick.direction": "in"}
    with matplotlib.rc_context(own):
        second = curves(logs)
        picture(second, ".png")
        as_svg(second)
        of_second = picture(second, ".svg")
        assert {name: matplotlib.rcParams[name] for name in own} == own
    assert picture(first, ".svg") == of_second
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("kind", ["curves", "map"])
def test_an_svg_of_a_page_has_the_colours_of_the_page(figure, kind):
    if kind == "map":
        figure = attention_map(np.eye(2), ["▁a", "</s>"], ["▁b", "</s>"], title="x")
    svg = as_svg(figure, name="one", title='Loss & "BLEU"')
    check_references(svg)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label") == 'Loss & "BLEU"'
    assert "width" not in root.attrib and "height" not in root.attrib and root.get("viewBox")
    assert all(value.startswith("one-") for key, value in attributes(svg) if key == "id")
    used = {colour.upper() for _, value in attributes(svg) for colour in re.findall(r"#[0-9a-fA-F]{6}\b", value)}
    assert used <= set(COLOURS), "ink is currentColor, and there is no background"
    filled = [text.get("style", "") for text in root.iter(f"{SVG}text")]
    assert filled and all("fill: currentColor" in style and "font-family" not in style for style in filled)


def test_two_pictures_of_a_page_share_no_id(figure):
    ids = [{value for key, value in attributes(as_svg(figure, name=name)) if key == "id"} for name in ("a", "b")]
    assert ids[0] and not ids[0] & ids[1]
