"""Tests of the set-up."""
