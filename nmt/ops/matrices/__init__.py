"""Matrices packed for C kernels: products in training and search, bf16 and int8 weights, the best words of a step."""
