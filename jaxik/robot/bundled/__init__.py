"""Model files that come with jaxik."""
