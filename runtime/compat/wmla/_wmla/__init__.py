"""The parts of `fabric_model`; no script imports them."""
