"""Stationmaster: custody, one run and proof for work handed to coding agents."""
