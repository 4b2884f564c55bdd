"""Regular expressions in RE2's syntax, matched in time that is linear in the text: no pattern can block a server."""
