"""Choosing other translations from n-best lists by weighted features: nmt-rank."""
