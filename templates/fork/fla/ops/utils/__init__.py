"""Helpers of the operations."""
