"""What can this machine do, and what is missing?

Examinations of the host; what uses its abilities stands elsewhere.
"""
