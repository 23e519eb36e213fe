"""All commands under one name: `nmt train` is `nmt-train`."""
