"""Modules that search algorithms written for WMLA import."""
