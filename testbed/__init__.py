"""The shared vocabulary and the emulated world: clock, links, wire, schedule, runtimes."""
