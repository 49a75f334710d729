"""Attention layers and the operations under them."""
