"""Decides: windows, joins, detectors, the life of an alert, and the runners that drive them.

The law: an operator has no clock, no I/O and no randomness; a batch goes in, a list of outputs
comes out, and its state is explicit and versioned. Only the runners wait for anything. Imports
`schemas` and `transport`, never `producers` or `sinks`.
"""
