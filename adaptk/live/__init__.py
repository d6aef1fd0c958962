"""Engines seen while they run: their metrics pages read, compared over time, and shown in a terminal."""
