"""Device plugins: registration, the devices that each plugin lists, what pods got of them, and the PodResources API."""
