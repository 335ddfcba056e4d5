"""The helper process beside the sampler that reads the memory of GPUs and NPUs; it uses the standard library only."""
