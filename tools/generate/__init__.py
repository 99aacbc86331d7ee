"""One module for each generated document: `PATH` under docs/ and `render()`, which returns its whole text.

A new document is a new module here; nothing else lists them.
"""
