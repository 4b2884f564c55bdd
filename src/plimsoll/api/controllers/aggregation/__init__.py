"""Controllers of APIServices: one for each group and version that this server serves."""
