"""Corpora: fetching public ones, finding faults, and making a clean copy."""
