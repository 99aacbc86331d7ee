"""The demo: a forge, a scripted model and the product as a real process; two mentions, told as they happen and proven.

It checks what the forge holds, not what the product says of itself, and leaves nothing behind.
"""
