"""Compiled code in a wheel: scripts/build_wheel puts the libraries into this folder."""
