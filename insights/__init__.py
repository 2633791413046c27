"""Answers worked out for people: why a job has its GPUs, previews, forecasts, advice, comparisons, and their pages.

Everything here reads; nothing changes a job. Reports, replays, alerts and the site's own pages call it; `jobs` never
does.
"""
