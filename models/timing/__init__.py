"""What a whole program costs: an event for each thing that happens on a core, no data."""
