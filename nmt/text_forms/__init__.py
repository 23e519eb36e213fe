"""Parallel text in one file: TSV, JSON lines and TMX."""
