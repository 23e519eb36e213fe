"""Training that starts from the weights of another model, with its vocabulary or another one."""
