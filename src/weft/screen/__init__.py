"""What people and programs see of a command: colour, links and documents."""
