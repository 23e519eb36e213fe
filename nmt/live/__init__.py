"""Live translation: models that translate while a sentence is still being spoken."""
