"""The commands about objects of a cluster: get, describe, apply, delete, logs, exec, attach, port-forward, events."""
