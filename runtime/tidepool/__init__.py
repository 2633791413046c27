"""Tidepool's runtime: what training scripts and executors share. Importing it never imports torch."""

__version__ = "0.1.0"
