"""The version of Tidepool: of the site, its client and its runtime alike.

Each HTTP response of a site names the site's version in a header, and the client compares that version with its own.
"""

__all__ = ["VERSION", "VERSION_HEADER"]

VERSION = "0.1.0"
VERSION_HEADER = "Tidepool-Version"
