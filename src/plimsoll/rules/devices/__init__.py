"""Devices of device plugins: topology hints, and which devices a container gets."""
