"""What does each split of a model cost: FLOPs, bytes, seconds on this machine?

Counting and timing alone; nothing here learns.
"""
