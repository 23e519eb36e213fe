"""Runs compared over systems and seeds (`nmt-compare`), and many of them trained (`nmt-train --sweep`)."""
