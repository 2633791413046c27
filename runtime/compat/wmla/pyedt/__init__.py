"""The name that newer versions of WMLA give to the modules of elastic training."""
