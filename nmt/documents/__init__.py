"""Documents: the decoder's states are carried from each sentence to the next."""
