"""What ``adaptk doctor`` looks at: each field of checks in a file of its own, each check a :class:`Finding` or more."""
