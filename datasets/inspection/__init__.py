"""Looks into a dataset's files without trusting them: what they are, how many, what is wrong. Needs no Django."""
