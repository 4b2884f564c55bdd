"""Authentication and authorization: certificates, tokens, impersonation, RBAC, nodes, and the certificate authority."""
