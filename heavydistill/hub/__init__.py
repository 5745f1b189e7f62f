"""Publishing to the Hub: cards of sets, traces and models, licence checks, and the upload."""
