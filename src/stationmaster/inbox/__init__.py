"""The inbox: which outside event was taken, once, and what became of it; it never keeps a body."""
