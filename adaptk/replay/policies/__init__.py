"""Policies that choose K: adaptk, its ablations, its rivals, and what bounds them all. One file each."""
