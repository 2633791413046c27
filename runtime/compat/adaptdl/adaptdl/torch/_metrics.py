"""AdaptDL's own measurements of steps, which are not here: importing this module says so."""

raise ImportError(
    "adaptdl.torch._metrics is not here: a training measures its steps itself. How far it is, the gns of its "
    "AdaptiveDataParallel says: model.gns.get_progress()",
    name="adaptdl.torch._metrics",
)
