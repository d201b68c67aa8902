"""The engine: token ids in, token ids out, KV in pages over three tiers. Prints nothing."""

import os

# How long torch's threads spin at a barrier before they sleep (libgomp; read once, when torch is
# first imported). Its default of milliseconds starves the I/O threads and, on a busy machine, the
# compute: a 0.8 MB copy took 8 ms instead of 0.04 ms. Sleeping at once makes decode a third slower.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
