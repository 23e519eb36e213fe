"""The HTTP server of nmt-serve: requests of many clients, translated in batches."""
