"""What may hang, done beside the event loop and with bounds: work in threads, small files, programs."""
