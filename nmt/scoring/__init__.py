"""Scores of given translations, texts and n-best lists: nmt-score."""
