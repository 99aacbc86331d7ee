"""Bare repositories, worktrees and the one git runner; never deletes what it did not make."""
