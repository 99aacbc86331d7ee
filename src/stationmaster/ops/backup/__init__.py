"""Copies of a whole installation: made while it runs, proven, and brought back into an empty home."""
