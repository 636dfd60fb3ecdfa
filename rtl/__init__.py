"""The hardware, in Amaranth. Imports only models."""
