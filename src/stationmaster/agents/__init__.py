"""Drivers of coding agents and the isolation they run in."""
