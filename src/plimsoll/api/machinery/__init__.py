"""What every handler shares: kinds, RequestInfo, content negotiation, Status errors, metadata, selectors."""
