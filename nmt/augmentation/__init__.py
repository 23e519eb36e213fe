"""Training text changed as people change it: capitals, typing errors, missing end marks, several sentences."""
