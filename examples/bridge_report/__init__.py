"""The inspection report of a bridge that does not exist: facts, prose and typesetting."""
