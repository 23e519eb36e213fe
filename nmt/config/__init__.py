"""Configuration: typed sections, loading, error messages."""

from nmt.config.load import dump, find_config, import_plugins, load_config, load_saved, write_config
from nmt.config.options import component_options
from nmt.config.schema import Config, DataConfig, DecodingConfig, EvaluationConfig, ModelConfig, TrainingConfig

__all__ = [
    "Config",
    "DataConfig",
    "DecodingConfig",
    "EvaluationConfig",
    "ModelConfig",
    "TrainingConfig",
    "component_options",
    "dump",
    "find_config",
    "import_plugins",
    "load_config",
    "load_saved",
    "write_config",
]
