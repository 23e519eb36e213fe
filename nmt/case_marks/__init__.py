"""Subwords of text in small letters, with marks where a word is written otherwise than usual."""
