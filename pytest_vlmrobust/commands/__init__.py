"""The commands of `vlmrobust`: each module has the commands of one subject. The parameters of a function are its arguments."""
