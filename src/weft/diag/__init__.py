"""Diagnosis: what tells people what is wrong and what it means, with or without a daemon."""
