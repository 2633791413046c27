"""Log-in of an organization's people: OpenID Connect, and what groups of the provider mean on this site."""
