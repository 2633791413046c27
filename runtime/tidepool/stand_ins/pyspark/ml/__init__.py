"""Tidepool's stand-in; see `pyspark`."""
