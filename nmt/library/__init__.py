"""The library: translating, scoring, training and evaluating from Python; reached as `nmt.load` and the like."""
