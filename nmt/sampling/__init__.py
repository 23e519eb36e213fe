"""Searches that draw translations: samples, beams with noise, and the least expected loss among samples (MBR)."""
