"""Campaigns: many scenarios from one file, computed on many machines, kept, checked and shown."""
