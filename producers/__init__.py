"""Reads a device, an API or a history, makes a schema type of it, and hands it to transport.

The law: decides nothing. Imports `schemas` and `transport`, never `streams` or `sinks`, and no
library of the detectors, because this package runs on every node.
"""
