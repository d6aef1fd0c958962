"""The page of a report: one HTML file, a module for each of its sections."""
