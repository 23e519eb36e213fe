"""Descriptions of models beside their weights."""
