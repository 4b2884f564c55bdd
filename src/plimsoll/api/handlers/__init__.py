"""The HTTP verbs on resources: create, get and list, watch, update, patch, delete, and the subresources."""
