"""What goes to the Hub: the card of a dataset, who may publish what, and the upload itself."""
