"""The plugins: a folder each, whose `verbs` are what a runtime calls."""
