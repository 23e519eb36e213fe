"""Pictures of runs and sentences: learning curves, attention and memory maps. Needs the extra `plot`, matplotlib.

`curves`, `bands`, `scatter`, `attention_map` and `memory_map` return a matplotlib Figure, without pyplot and its state;
`as_svg` makes an SVG for a page of it, `picture` the content of a file. matplotlib is imported by the first of them
that is called, and where it is absent that is one line of NmtError.
"""

from __future__ import annotations

from nmt.plotting.curves import AXES, Log, curves, default_panels, find_panels, read_logs, remarks
from nmt.plotting.maps import attention_map, memory_map
from nmt.plotting.over_seeds import bands, scatter
from nmt.plotting.style import ENDINGS, as_svg, check_ending, check_installed, font_remarks, picture

__all__ = [
    "AXES",
    "ENDINGS",
    "Log",
    "as_svg",
    "attention_map",
    "bands",
    "check_ending",
    "check_installed",
    "curves",
    "default_panels",
    "find_panels",
    "font_remarks",
    "memory_map",
    "picture",
    "read_logs",
    "remarks",
    "scatter",
]
