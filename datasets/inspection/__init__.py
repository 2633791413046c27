"""Inspection of a dataset's files without trusting them: kinds, numbers and faults. Needs no Django."""
