"""Curves and progress of scripts that know nothing of Tidepool, from what they print and write.

`pattern`, `lines`, `tables` and `tensorboard` turn bytes into points and touch no file; `sources` reads files bit by
bit; `observer` is the executor's thread that looks at the trainings of this host. None of them trusts what it reads.
"""
