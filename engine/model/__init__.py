"""Loads a Hugging Face model and makes it run on position-free keys. See README.md of this room."""
