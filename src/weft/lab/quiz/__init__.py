"""The quiz: a fault that is drawn by lot, its symptom, hints, and a score."""
