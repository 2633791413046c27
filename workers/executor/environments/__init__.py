"""Environments with the packages that a training requires beside the cluster's own, built by uv and cached by digest.

`requirements` says what has to be built and opens no file; `builder` builds an environment; `cache` answers the
reconcilers of this host's jobs and removes environments that have long been unused.
"""
