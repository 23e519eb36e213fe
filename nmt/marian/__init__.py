"""Models of Marian, Firefox and OPUS-MT: read into models of nmt, and models of nmt written as Marian's files."""
