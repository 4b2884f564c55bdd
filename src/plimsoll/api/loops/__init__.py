"""The control plane's loops, one module each: they decide by `rules`, read the store, write through the API."""
