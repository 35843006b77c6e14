"""The commands of `vlmrobust`: each module holds those of one subject, as functions whose parameters are the arguments."""
