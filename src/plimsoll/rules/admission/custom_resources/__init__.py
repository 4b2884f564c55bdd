"""What definitions of custom kinds may contain, and which objects of these kinds are valid."""
