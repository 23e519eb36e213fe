"""Models as ONNX graphs, for ONNX Runtime: what `nmt-export --format onnx` writes."""
