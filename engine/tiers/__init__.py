"""Where pages lie and how they move: device, host and disk."""
