"""Making a shortlist of target pieces for each source piece from a parallel text: nmt-shortlist."""
