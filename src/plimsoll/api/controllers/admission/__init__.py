"""Controllers of admission: the type checks of policies."""
