"""Moves bytes between topics and callers: ordered partitions in memory, or on Kafka.

The law: knows no meaning. A record is a key, a value, headers and a time; what they say is the
callers' business. Imports `schemas` at most.
"""
