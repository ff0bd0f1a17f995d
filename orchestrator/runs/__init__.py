"""What is a run on disk: its directory, manifest, tables?

Filling and finding run directories; how they are shown stands in `orchestrator.reporting`.
"""
