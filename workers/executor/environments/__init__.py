"""Environments with what a training requires beside the cluster's packages, built by uv and kept by digest.

`requirements` reads and checks what is required, and touches no file; `build` makes an environment; `keeper` is asked
by the reconcilers of this host's jobs, and removes what nobody has used for long.
"""
