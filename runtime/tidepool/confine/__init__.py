"""Walls around the processes of a training: what they may open, connect to and signal. Standard library only.

The forkserver puts a child that becomes a shim or a coordinator behind its wall (`surround.py`) before anything of a
user's runs there; all ranks of a job on a host are forked behind the same wall. `probe.py` finds out once what a
host's kernel can do, and `levels.py` says in words what that amounts to.
"""
