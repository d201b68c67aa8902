"""The command line: arguments and printing. No tensors, no policy."""
