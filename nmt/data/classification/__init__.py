"""Texts, or pairs of texts, with a label each: reading them, and what batches are made of."""
