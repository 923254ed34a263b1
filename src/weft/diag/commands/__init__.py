"""The commands of diagnosis: what people see of it."""
