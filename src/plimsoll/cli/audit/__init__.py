"""`plimsoll audit`: the differences between what pods declare and what the kernel of their node has."""
