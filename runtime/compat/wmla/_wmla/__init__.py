"""What `fabric_model` is made of; no script imports it."""
