"""The library: translating, scoring, training and evaluating from Python, as `nmt.load` and so on."""
