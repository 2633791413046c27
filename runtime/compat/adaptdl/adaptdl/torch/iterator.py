"""AdaptDL's iterator over texts, which is not here: importing this module says so."""

raise ImportError(
    "adaptdl.torch.iterator is not here: its AdaptiveBPTTIterator reads datasets of torchtext's first API, which no "
    "longer exists. Make a Dataset whose samples are pieces of the text, and take an AdaptiveDataLoader.",
    name="adaptdl.torch.iterator",
)
