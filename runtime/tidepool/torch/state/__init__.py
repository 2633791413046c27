"""The state of a training that crosses a resize and that a checkpoint holds, and the update that changes it.

Every other folder of `tidepool.torch` may call it, except `coordination/`.
"""
