"""Alerts: users' rules about trainings and groups, and the resulting messages by e-mail, Slack and webhooks.

Only webapp imports it. Nothing is sent in a request: the background worker decides and sends.
"""
