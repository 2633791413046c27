"""The form of a host's name, which stands in queue names, folder names and addresses."""

from __future__ import annotations

import re

__all__ = ["HOST_NAME"]

HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
