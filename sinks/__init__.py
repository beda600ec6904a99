"""Consumes topics and delivers what they say to people and machines.

The law: knows nothing of how a verdict was reached. Imports `schemas` and `transport`, never
`streams` or `producers`.
"""
