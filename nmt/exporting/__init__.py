"""nmt-export: models as folders, as files for the engine, and as ONNX graphs."""
