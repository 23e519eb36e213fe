"""What of a source line is kept: placeholders, terms of a glossary, unknown words."""
