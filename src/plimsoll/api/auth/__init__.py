"""Authentication and authorization: client certificates, tokens, built-in roles, and the certificate authority."""
