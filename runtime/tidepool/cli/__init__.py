"""The command line `tidepool`. Each command is a module, loaded when it is used: `tidepool ps` waits for no other's."""

from tidepool.cli.app import main

__all__ = ["main"]
