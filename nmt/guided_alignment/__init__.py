"""Word alignments beside the training text, which attention to the source learns: `training.guided_alignment`."""
