"""Tasks: what is wanted of a configuration, as residuals with Jacobians."""
