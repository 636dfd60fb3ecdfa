"""Small reusable parts: FIFOs, stream helpers, shifters, leading zeros, arbiters."""
