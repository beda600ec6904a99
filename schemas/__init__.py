"""The wire: every message on every topic is a type of this package.

Models, topics, keys, versions, encoding and decoding, and the contracts generated from them.

The law: pure data. No I/O, no clock, and no import of any other package of gpuvigil.
"""
