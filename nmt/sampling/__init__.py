"""Searches for varied translations: samples, beams with noise or in groups, and the least expected loss (MBR)."""
