"""The one sender of effects that are rows first: intent, attempt, proof read back."""
