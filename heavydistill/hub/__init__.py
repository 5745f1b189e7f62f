"""What goes to the Hub: cards of datasets and models, who may publish what, and the upload."""
