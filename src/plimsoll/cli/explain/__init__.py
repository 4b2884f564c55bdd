"""`plimsoll explain` and `plimsoll plan`: what a node will do with a manifest, before anything runs."""
