"""The corpus of the demo, which `data.generator: demo` writes."""
