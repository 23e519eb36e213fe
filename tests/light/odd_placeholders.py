"""Lines of what placeholders are made of, whole and in pieces, in any order."""

from __future__ import annotations

import random

_PARTS = """
{ } {{ }} {{{ }}} ${ #{ %{ {name} {{x}} {%d} {#} {} {% %} {%-_if_x_%} {%_endif_%} {%_end_%} {{#each_a}} {{/each}} {#_ #}
{a_b} ${a_b} {{a_b}} % %s %1$s %-5d %-0+0d %.2f %(na.me)s %( %% 100%sure 5%20 a%C3 %- * . .* hh ll q d - + 0 $ # 23
< > </ /> <b <b> </b> <i> </i> <br> <br/> <a_href=" " ' = x=y x="1" x='2' <!-- --> <![CDATA[ ]]> <? ?> <%
<!DOCTYPE_html> <!ELEMENT <unk> </unk> ns:tag.x <ns:t.a-b_c> <B> </B> <a<b a<b_c >d </\u0130> \u212a \u017f
&nbsp; &amp; &quot; &#160; &#x201c; &#39; &#x2013; &laquo; &foo; & &#1; &#128; &#147; &shy; &#x &#1234567; &hellip; ; :
http:// https:// HTTPS:// ftp:// www. WwW. a.b/c 例え.jp 한국.kr (x) ( ((( ) [ ] a@b.de a.b+c@d-e.f.g @ %a@b.c user @b.
http://x.y/(z). ” “ ’ … » « a b1 Z _ é ñ \u0663 Ⅷ 中 文 。 、 ! ? , if end name 😀 \u0301 \ud7a3
"""
_SPACES = [" ", " ", " ", "\u00a0", "\u3000", "\t", "\x1c", "\x85", "\ufeff", "\u200b", "\x00", "\ue000"]
ATOMS = [*(part.replace("_", " ") for part in _PARTS.split()), *_SPACES]
_WORDS = ["a", "b", "longaer", "sentence", "of", ".", ",", "!", "{name}", "%s", "<b>", "</b>", "<i>", "</i>", "<br/>"]
_WORDS += ["https://a.b/c", "a@b.de", "&nbsp;", "&quot;", "Zqxj", "Grüße"]


def odd_lines(count: int, *, seed: int, atoms: bool = True) -> list[str]:
    """Lines of atoms without spaces between them; else of whole words and placeholders."""
    draw, lines = random.Random(seed), []
    for _ in range(count):
        if atoms:
            lines.append("".join(draw.choices(ATOMS, k=draw.randint(1, draw.choice([3, 8, 20])))))
        else:
            lines.append(
                " ".join(draw.choices(_WORDS, k=draw.randint(1, 16))).replace(" </", draw.choice(["</", " </"]))
            )
    return lines
