"""The controllers, one module each: they decide by `rules`, read the store and write through the API."""
