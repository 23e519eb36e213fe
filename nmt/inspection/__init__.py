"""A look inside models: attention, states, gates and memory of units while they read a sentence and its translation."""
