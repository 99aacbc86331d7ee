"""Measures the product on the machine it runs on (`stationmaster bench accept|claim|command`) and asserts nothing.

Every figure stands beside a simpler way to write the same rows, measured in the same run, because one machine's
milliseconds mean nothing on another. It works on databases of its own and never touches an installation.
"""
