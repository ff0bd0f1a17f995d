"""The shared vocabulary (paradigm, timeline) and the emulated world (clock, links, wire, runtimes)."""
