"""The coordinator of a job: which ranks train together, which of them are stuck, which checkpoints count.

Only the forkserver and tests run the coordinator; a rank takes names of files and messages from here. Everything but
`coordinator.py` is free of I/O, except for the renames in `publication.py`.
"""
