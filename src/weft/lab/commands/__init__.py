"""What people type and see: each command asks the lab's supervisor, or runs where the lab is not."""
