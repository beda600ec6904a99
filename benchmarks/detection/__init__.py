"""How right the detectors are: labelled signals, public rules beside them, and an honest judge."""
