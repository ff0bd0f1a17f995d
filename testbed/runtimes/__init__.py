"""The runtimes: who starts the node processes and isolates them."""
