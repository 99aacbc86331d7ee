"""The composition root: configuration, daemon, demo and everything an operator starts."""
