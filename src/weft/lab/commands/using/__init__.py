"""What is done in a lab that is up: commands run, files copied, logs read, a picture drawn."""
