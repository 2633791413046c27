"""The version of the runtime and client, which the site tells with each answer and the client compares with its own."""

__all__ = ["VERSION", "VERSION_HEADER"]

VERSION = "0.2.0"
VERSION_HEADER = "Tidepool-Version"
