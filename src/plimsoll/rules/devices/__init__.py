"""Devices of device plugins: names, hints, which devices a container gets, and what its answers add to it."""
