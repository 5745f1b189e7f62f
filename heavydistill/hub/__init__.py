"""Publishing to the Hub: cards of datasets and models, licence checks, and the upload."""
