"""The demonstration: the real vLLM engine under a load that changes, once per policy."""
