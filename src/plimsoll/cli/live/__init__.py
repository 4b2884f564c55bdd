"""Live screens on a terminal: frames of text, their differences, keys, and the session that shows them."""
