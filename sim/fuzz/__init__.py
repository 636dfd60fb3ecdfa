"""Random programs: made, run on the chip and on the functional model, compared, and made small when they differ."""
