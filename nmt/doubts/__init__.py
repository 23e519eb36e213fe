"""What may make a training useless: warnings."""
