"""Recorded traces made into worlds: who is who, what was accepted, what a step costs."""
