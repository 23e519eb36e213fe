"""Corpora: fetching public ones, looking for what is wrong with one, and making a clean copy."""
