"""The corpus of training loops: each trains under `tidepool.torch.prepare` as its plain twin does, or is refused.

`python -m tests.loops` runs loops of `corpus/` through patterns of sizes; `test_corpus.py` runs a part in the suite.
"""
