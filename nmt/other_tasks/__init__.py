"""What the tasks share that do not translate: their text in memory, and commands that label lines."""
