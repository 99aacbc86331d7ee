"""The doors: REST, CLI, control socket; they make the grants and call the slices' commands."""
