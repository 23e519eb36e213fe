"""Models as files for the engine without PyTorch: what `nmt-export --format engine` writes."""
