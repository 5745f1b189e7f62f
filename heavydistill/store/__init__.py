"""Files on disk: traces, sets, records of trainings, atomic folders, the journal."""
