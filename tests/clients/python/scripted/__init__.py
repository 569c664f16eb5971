"""A tiny scripted model behind the three wires that amalgam speaks to.

`model` decides what is said, `chat`, `responses` and `anthropic` put it into the shape of one public API, and
`../upstreams.py` serves them. Standard library only, so that the Node tests can start it with any Python.
"""
