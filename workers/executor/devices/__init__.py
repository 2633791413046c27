"""The GPUs of this host: what the driver says of them, whether they compute, and what is missing in sentences.

Only the executor and `manage.py doctor` call it. Nothing here loads torch: the self-test runs in a process of its own.
"""
