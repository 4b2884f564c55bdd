"""`plimsoll explain`, `plan` and `upgrade-check`: what a node will do with a manifest, before anything runs."""
