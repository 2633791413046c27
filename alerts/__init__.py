"""Alerts: what users want to be told of trainings and groups, and the messages to e-mail, Slack and webhooks.

Only webapp imports it. Nothing is sent in a request: the background worker decides and sends.
"""
