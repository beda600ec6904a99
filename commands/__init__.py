"""The command line: builds the stages, hands them to each other, and talks to whoever typed.

The law: the only room that sees producers, streams and sinks together; nobody imports it but the
root module `gpuvigil`.  One module for each group of commands.
"""
