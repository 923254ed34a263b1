"""What plugins that make a pair of links share: making it, checking it, taking it down."""
