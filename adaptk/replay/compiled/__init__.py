"""The engine's step, compiled by numba."""
