"""How pages at rest are coded. Only raw, the model's own dtype, exists today."""
