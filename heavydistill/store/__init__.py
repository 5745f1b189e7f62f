"""What lies on disk: traces, sets, records of trainings, folders that appear whole, the journal."""
