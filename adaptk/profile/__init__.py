"""Measuring a table on the real engine: what is measured next, what is concluded, and what survives an interrupt."""
