"""What the nodes compute and exchange: the split LoRA model, its data, the BS and UAV programs."""
