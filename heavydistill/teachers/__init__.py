"""Who is asked: profiles of models, and the registry that finds one by name."""
