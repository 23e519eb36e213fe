"""What `nmt-train --dry-run` prints: the data, the model and the memory with which training would start."""
