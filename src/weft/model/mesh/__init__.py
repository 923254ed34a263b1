"""A mesh of peers: what they are, what they tell each other and keep, what its core is asked and asks for."""
