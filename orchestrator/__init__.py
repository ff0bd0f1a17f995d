"""Who decides, predicts, compares and repeats?

What happens on a link or in a node stands in `testbed` and `workloads`.
"""
