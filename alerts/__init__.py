"""Alerts: users' rules about trainings, studies and groups, and the messages by e-mail, Slack and webhooks.

Only webapp imports it. Nothing is sent in a request: the background worker decides and sends.
"""
