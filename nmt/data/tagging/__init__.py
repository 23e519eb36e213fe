"""Text whose words, or characters, have labels: columns, schemes, segmented text, vocabularies, vectors."""
