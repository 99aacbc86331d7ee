"""The web console: pages for people, over the same commands as every other door."""
