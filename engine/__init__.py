"""The engine: token ids in, token ids out, KV in pages over three tiers. Prints nothing."""

import os

# Threads of torch's pool spin at barriers by default and so starve the I/O threads (and each other,
# when the machine is busy): a 1 MB copy took 8 ms instead of 0.04 ms on two loaded cores. Read
# once, when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
