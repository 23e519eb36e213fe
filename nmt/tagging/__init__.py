"""Labels of words, and words in text without spaces, which are labels of its characters."""
