"""`stated`: the per-user daemon that owns the state directories of agent skills."""

__version__ = "0.1.0"
