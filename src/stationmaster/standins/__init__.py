"""Stand-ins for the forge and the model, for demo and tests; they import nothing of the product."""
