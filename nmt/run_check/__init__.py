"""Whether a run can be continued, and what is wrong with its files: nmt-check."""
