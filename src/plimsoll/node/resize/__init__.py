"""In-place resize on the node: the queue of requests, and the actuator that applies an allocated resize."""
