"""How sure a model is of its translations, as nmt-confidence has fitted it, and text that is unlike training."""
