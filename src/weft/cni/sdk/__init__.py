"""What every plugin is written with: request and host, start-up rules, delegates, records of attachments."""
