"""Training text that models make, for distillation and back-translation; a kill costs no more than the last lines."""
