"""`plimsoll resize`: forecast, request, and wait until the node has applied it."""
