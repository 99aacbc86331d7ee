"""Doctor: looks at an installation from outside and says of each part whether it works, and what to do if not.

It changes nothing, needs no lock, and works beside a running daemon as well as without one.
"""
