"""How is a run shown: pages, figures, traces?

Views of what others found; a number that is not in a record is not made here.
"""
