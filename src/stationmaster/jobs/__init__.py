"""Runs of agents and the events they produced."""
