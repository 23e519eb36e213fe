"""Validation and test sets that have names and are scored apart."""
