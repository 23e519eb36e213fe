"""Functions of tensors: the recurrences and the other inner loops, each with a plain reference beside any kernel."""
