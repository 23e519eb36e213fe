"""nmt: recurrent neural machine translation with selectable units."""

__version__ = "0.2.0"
