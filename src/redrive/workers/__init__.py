"""A person's hands on the workers of a group, by way of its state topics."""
