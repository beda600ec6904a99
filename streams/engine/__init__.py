"""The engine: the operators of `streams` on Apache Kafka, driven by Faust.

The law: decides nothing about GPUs.  It owns offsets, checkpoints and acknowledgements, and it is
the only place of `streams` that waits for a broker.  The order is the guarantee: outputs are
acknowledged, then the states with their offsets, then the group's offset.
"""
