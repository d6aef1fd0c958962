"""Offline replay: what a policy would have done on recorded traffic and in hard worlds."""
