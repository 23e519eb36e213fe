"""Pictures of runs, sentences and live translation. Needs the extra `plot`, matplotlib.

`curves`, `bands`, `scatter`, `attention_map`, `memory_map`, `timeline` and `lag_curves` return a matplotlib Figure,
without pyplot and its state; `as_svg` makes an SVG for a page of it, `picture` the content of a file. matplotlib is
imported by the first of them that is called, and where it is absent that is one line of NmtError.
"""

from __future__ import annotations

from nmt.plotting.curves import AXES, Log, curves, default_panels, find_panels, read_logs, remarks
from nmt.plotting.live import Measured, Written, lag_curves, read_measured, timeline
from nmt.plotting.maps import attention_map, memory_map
from nmt.plotting.over_seeds import bands, scatter
from nmt.plotting.style import ENDINGS, as_svg, check_ending, check_installed, font_remarks, picture

__all__ = [
    "AXES",
    "ENDINGS",
    "Log",
    "Measured",
    "Written",
    "as_svg",
    "attention_map",
    "bands",
    "check_ending",
    "check_installed",
    "curves",
    "default_panels",
    "find_panels",
    "font_remarks",
    "lag_curves",
    "memory_map",
    "picture",
    "read_logs",
    "read_measured",
    "remarks",
    "scatter",
    "timeline",
]
