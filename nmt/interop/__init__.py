"""Files of other systems and of runs: parameters of Zero, run directories, saved models."""
