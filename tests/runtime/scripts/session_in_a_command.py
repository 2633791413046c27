"""Runs a command in its place, which trains."""

import sys
from pathlib import Path

from tidepool.command_runner import run

sys.argv[1:] = [sys.executable, str(Path(__file__).with_name("mlp.py"))]
run()
