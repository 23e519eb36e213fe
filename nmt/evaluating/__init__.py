"""nmt-eval: scores of translations, with their significance."""
