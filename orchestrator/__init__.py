"""Who decides, predicts, compares and repeats: scenario, engine, emulation, report, CLI."""
