"""The plugins: a file each, or a folder whose `plugin` has the verbs."""
