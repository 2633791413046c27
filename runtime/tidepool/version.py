"""The version of the runtime and client, which the site compares with its own."""

__all__ = ["VERSION"]

VERSION = "0.2.0"
